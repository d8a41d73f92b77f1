"""What each door can: every capability is tried at every door. A door gives the result that plain
torch gives, or refuses. Rank 0 prints the table of docs/ddp.md as JSON; run on 3 ranks."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from ddp_support import RANK, SIZE
from doors_support import DENSE, DOORS, HALF, MEMBERS, RATE, Door, Make, Net, loss_of, meet
from support import equal, say

import penstock.torch as hvd

# Raised where a door does not take what a script asks for. It must be raised on every rank.
REFUSALS = (ValueError, NotImplementedError, TypeError, hvd.HorovodInternalError)


# ---- what plain torch gives ----


def plain(
    backwards: Callable[[Any, int, int], None],
    steps: int = 3,
    ranks: tuple[int, ...] = tuple(range(SIZE)),
    net: Callable[[], torch.nn.Module] = Net,
    change: Callable[[list[torch.Tensor]], None] = lambda gradients: None,
) -> list[torch.Tensor]:
    """Training with the mean of all ranks' gradients. backwards(module, step, rank): the backwards
    of a step on a rank. change: of the mean."""
    module = net()
    for step in range(steps):
        means = means_of(backwards, module, step, ranks)
        change(means)
        apply(means, module)
    return [one.detach() for one in module.parameters()]


def means_of(
    backwards: Callable[[Any, int, int], None], module: Any, step: int, ranks: tuple[int, ...]
) -> list[torch.Tensor]:
    means = [torch.zeros_like(one) for one in module.parameters()]
    for rank in ranks:
        module.zero_grad()
        backwards(module, step, rank)
        for mean, one in zip(means, module.parameters()):
            if one.grad is not None:
                mean += one.grad.to_dense() / len(ranks)
    return means


@torch.no_grad()
def apply(means: list[torch.Tensor], module: Any) -> None:
    for mean, one in zip(means, module.parameters()):
        one -= RATE * mean


def backward_of_all(module: Any, step: int, rank: int) -> None:
    loss_of(module, step, rank).backward()


def net_like(door: Door) -> Net:
    """A net with the parameters that are behind the door."""
    net = Net()
    with torch.no_grad():
        for one, values in zip(net.parameters(), door.whole()):
            one.copy_(values)
    return net


def near(got: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
    for one, other in zip(got, wanted):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def same(one: Door, other: Door) -> None:
    for mine, theirs in zip(one.whole(), other.whole()):
        equal(mine, theirs)


# ---- the capabilities ----


def trains(make: Make) -> None:
    door = make(Net())
    door.train(range(3))
    near(door.whole(), plain(backward_of_all))


def accumulates(make: Make) -> None:
    door = make(Net(), passes=2)
    for step in range(3):
        door.optimizer.zero_grad()
        door.backward(2 * step, is_last=False)
        door.backward(2 * step + 1)
        door.waits()
        door.step()

    def twice(module: Any, step: int, rank: int) -> None:
        loss_of(module, 2 * step, rank).backward()
        loss_of(module, 2 * step + 1, rank).backward()

    near(door.whole(), plain(twice))


def clips_the_mean(make: Make) -> None:
    door = make(Net())
    for step in range(3):
        door.optimizer.zero_grad()
        door.backward(step)
        door.waits()
        torch.nn.utils.clip_grad_norm_(door.module.parameters(), 0.05)
        door.step()

    def clip(means: list[torch.Tensor]) -> None:
        norm = torch.stack([one.norm() for one in means]).norm()
        for mean in means:
            mean *= 0.05 / (norm + 1e-6)

    near(door.whole(), plain(backward_of_all, change=clip))


def leaves_parameters_out(make: Make) -> None:
    door = make(Net(), HALF.replace("0.5", "1.0"))
    for step in range(4):
        door.optimizer.zero_grad()
        door.backward(step, both=step % 2 == 0)
        door.waits()
        door.step()
    near(door.whole(), plain(lambda m, s, r: loss_of(m, s, r, s % 2 == 0).backward(), 4))


def keeps_residuals_at_their_size(make: Make) -> None:
    scaled, unscaled = make(Net(), HALF), make(Net(), HALF)
    for step in range(4):
        factor = 2.0 ** (4 * (step % 2))
        for teller in scaled.tellers:
            teller.set_grad_scale(factor)
        scaled.optimizer.zero_grad()
        scaled.backward(step, factor=factor)
        scaled.waits()
        for one in scaled.module.parameters():
            one.grad.mul_(1 / factor)
        scaled.step()
        unscaled.train(range(step, step + 1))
        same(scaled, unscaled)


def forgets_what_is_thrown_away(
    make: Make, tell: Callable[[Any], None] = lambda teller: None
) -> None:
    throws, plainly = make(Net(), HALF), make(Net(), HALF)
    for step in range(3):
        throws.optimizer.zero_grad()
        throws.backward(50 + step)
        throws.waits()
        for teller in throws.tellers:
            tell(teller)
        for door in (throws, plainly):
            door.train(range(step, step + 1))
    same(throws, plainly)


def is_told_the_outcome(make: Make) -> None:
    forgets_what_is_thrown_away(make, lambda teller: teller.step_end("forget"))


def lets_residuals_go(make: Make) -> None:
    door = make(Net(), HALF)
    door.train(range(3))
    for teller in door.tellers:
        teller.let_go()
    fresh = make(net_like(door), HALF)
    for one in (door, fresh):
        one.train(range(3, 5))
    same(door, fresh)


def resumes(make: Make) -> None:
    door = make(Net(), HALF)
    door.train(range(3))
    saved = [copy.deepcopy(_state_of(one)) for one in door.states]
    resumed = make(net_like(door), HALF)
    for holder, state in zip(resumed.states, saved):
        _load(holder, state)
    for one in (door, resumed):
        one.train(range(3, 6))
    same(door, resumed)


def _state_of(holder: Any) -> Any:
    return (getattr(holder, "compression_state_dict", None) or holder.state_dict)()


def _load(holder: Any, state: Any) -> None:
    (getattr(holder, "load_compression_state_dict", None) or holder.load_state_dict)(state)


def trains_on_some_ranks(make: Make) -> None:
    if RANK in MEMBERS:
        door = make(Net(), ranks=MEMBERS)
        door.train(range(3))
        wanted = plain(backward_of_all, ranks=MEMBERS)
        near(door.whole(), wanted)
    dist.barrier()


class Table(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.table = torch.nn.Embedding(8, 4, sparse=True)

    def forward(self, step: int, rank: int) -> torch.Tensor:
        return self.table((torch.arange(3) + step + rank) % 8)


def takes_sparse_gradients(make: Make) -> None:
    door = make(Table())
    for step in range(3):
        door.optimizer.zero_grad()
        door.module(step, RANK).square().sum().backward()
        door.waits()
        door.step()
    near(door.whole(), plain(lambda m, s, r: m(s, r).square().sum().backward(), net=Table))


def takes_closures(make: Make) -> None:
    door = make(Net())
    for step in range(3):

        def closure(at: int = step) -> torch.Tensor:
            door.optimizer.zero_grad()
            loss = loss_of(door.module, at, RANK)
            loss.backward()
            return loss

        door.optimizer.step(closure)
    near(door.whole(), plain(backward_of_all))


def applies_one_step_late(make: Make) -> None:
    door = make(Net(), DENSE + 'apply = "previous"\n')
    door.train(range(3))
    door.optimizer.flush()
    module, late = Net(), None
    for step in range(3):
        means = means_of(backward_of_all, module, step, tuple(range(SIZE)))
        if late is not None:
            apply(late, module)
        late = means
    apply(late, module)
    near(door.whole(), [one.detach() for one in module.parameters()])


def updates_in_the_next_forward(make: Make) -> None:
    door = make(Net(), DENSE + 'scheduler = "dear"\nroute = "split"\n')
    for step in range(3):
        door.optimizer.zero_grad()
        door.backward(step)
        door.optimizer.step()
    if hasattr(door.optimizer, "flush"):
        door.optimizer.flush()
    near(door.whole(), plain(backward_of_all))


CAPABILITIES: dict[str, Callable[[Make], None]] = {
    "the mean of all ranks' gradients": trains,
    "gradients of several backwards add up": accumulates,
    "clipping the mean": clips_the_mean,
    "steps that do not use every parameter": leaves_parameters_out,
    "a changing loss scale (`set_grad_scale`)": keeps_residuals_at_their_size,
    "a backward that is thrown away leaves no trace": forgets_what_is_thrown_away,
    "`step_end`": is_told_the_outcome,
    "`let_go`": lets_residuals_go,
    "saving and loading the state, to the bit": resumes,
    "a process group of some ranks": trains_on_some_ranks,
    "sparse gradients": takes_sparse_gradients,
    "`optimizer.step(closure)`": takes_closures,
    '`apply = "previous"`': applies_one_step_late,
    "updates in the next forward (`dear`)": updates_in_the_next_forward,
}
# Cells that are no question there.
OTHER = {
    ("clipping the mean", "`LocalSteps`"): "each rank its own gradient",
    ("a changing loss scale (`set_grad_scale`)", "`LocalSteps`"): "not needed",
    ("a backward that is thrown away leaves no trace", "`LocalSteps`"): "not needed",
    ("`step_end`", "`LocalSteps`"): "not needed",
}


def tried(capability: str, door: str) -> str:
    """"yes", or "no" if the door refuses on this rank."""
    if (capability, door) in OTHER:
        return OTHER[capability, door]
    try:
        CAPABILITIES[capability](DOORS[door])
    except REFUSALS as error:
        say(f"rank {RANK}: {capability}, {door}: {type(error).__name__}: {str(error)[:300]}")
        return "no"
    except AttributeError as error:
        assert "has no attribute" in str(error), error
        return "no"
    except BaseException:
        say(f"rank {RANK}: {capability}, {door} has FAILED")
        raise
    return "yes"


if __name__ == "__main__":
    torch.set_num_threads(1)
    meet()
    table = {
        capability: {door: tried(capability, door) for door in DOORS} for capability in CAPABILITIES
    }
    if RANK == 0:
        say(f"table: {json.dumps(table)}")
    hvd.shutdown()
    dist.destroy_process_group()
