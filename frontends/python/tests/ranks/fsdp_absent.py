"""Parameters that only some steps use under FSDP2: a branch, an expert without tokens. Compared with
FSDP2 alone, and with a simulation of top-k in which such a step leaves the residual as it was."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Callable

import torch
import torch.distributed as dist
from ddp_support import RANK, SIZE, join_torch
from support import expect, run_checks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import penstock.torch as hvd
from penstock.torch.fsdp import PenstockReduceScatter, reduce_through_penstock

sys.path.append(str(Path(__file__).resolve().parents[4] / "tests"))
from oracle.method import Item  # noqa: E402
from oracle.top_k import TopK  # noqa: E402

STEPS = 7
USES: list[tuple[str, Callable[[int], bool]]] = [
    ("in every second step", lambda step: step % 2 == 0),
    ("from step 2 on", lambda step: step >= 2),
    ("until step 2", lambda step: step < 2),
]


def topk(density: float, scheduler: str = "fusion") -> str:
    return (
        f'[scheme]\ncompressor = "topk"\nmemory = "residual"\nscheduler = "{scheduler}"\n'
        f'[compressor.topk]\ndensity = {density}\nvalue_type = "fp32"\n'
    )


class Branches(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.always, self.sometimes = torch.nn.Linear(16, 7), torch.nn.Linear(16, 7)

    def forward(self, x: torch.Tensor, both: bool) -> torch.Tensor:
        return self.sometimes(x) + self.always(x) if both else self.always(x)


def branches() -> Branches:
    torch.manual_seed(0)
    return Branches()


def loss_of(model: torch.nn.Module, step: int, rank: int, both: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(4, 16, generator=generator)
    return (model(x, both) - x[:, :7]).square().mean()


def sharded(scheme: str | None) -> tuple[torch.nn.Module, PenstockReduceScatter]:
    model = branches()
    fully_shard(model, mesh=init_device_mesh("cpu", (SIZE,)))
    return model, reduce_through_penstock(model, scheme)[""]


def train(
    model: torch.nn.Module, use: Callable[[int], bool], steps: range = range(STEPS)
) -> list[torch.Tensor]:
    """The whole parameters after training."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, step, RANK, use(step)).backward()
        optimizer.step()
    return [one.full_tensor().detach().clone() for one in model.parameters()]


def alone(use: Callable[[int], bool]) -> list[torch.Tensor]:
    model = branches()
    fully_shard(model, mesh=init_device_mesh("cpu", (SIZE,)))
    return train(model, use)


def simulated(
    density: float, use: Callable[[int], bool], momentum: float = 0.9
) -> list[torch.Tensor]:
    """Trains all ranks in this process. Each parameter has a top-k of its own over its shards,
    which takes part in no step that does not use the parameter."""
    model = branches()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    named = dict(model.named_parameters())
    methods = {
        name: TopK(
            [Item(str(n), n, tuple(cut.shape)) for n, cut in enumerate(one.chunk(SIZE))],
            SIZE,
            density,
        )
        for name, one in named.items()
    }
    for step in range(STEPS):
        of_ranks: dict[str, list[torch.Tensor]] = {name: [] for name in named}
        for rank in range(SIZE):
            optimizer.zero_grad()
            loss_of(model, step, rank, use(step)).backward()
            for name, one in named.items():
                if one.grad is not None:
                    of_ranks[name].append(one.grad.clone())
        for name, one in named.items():
            one.grad = None
            if of_ranks[name]:
                cut = [
                    {str(n): shard for n, shard in enumerate(whole.chunk(SIZE))}
                    for whole in of_ranks[name]
                ]
                one.grad = torch.cat(list(methods[name].step(step, cut).values()))
        optimizer.step()
    return [one.detach() for one in model.parameters()]


def agree(got: list[torch.Tensor], wanted: list[torch.Tensor], what: str) -> None:
    for number, (mine, theirs) in enumerate(zip(got, wanted)):
        torch.testing.assert_close(
            mine, theirs, rtol=1e-4, atol=1e-5, msg=lambda t, n=number: f"{what}, {n}: {t}"
        )


def check_dense_and_all_entries_train_as_fsdp2_alone() -> None:
    for when, use in USES:
        wanted = alone(use)
        for scheme in (None, topk(1.0)):
            model, _ = sharded(scheme)
            agree(train(model, use), wanted, f"used {when}, scheme {scheme}")


def check_a_step_without_a_parameter_leaves_its_residual_as_it_was() -> None:
    for when, use in USES:
        for scheduler in ("fusion", "wfbp"):
            model, _ = sharded(topk(0.25, scheduler))
            agree(train(model, use), simulated(0.25, use), f"used {when}, {scheduler}")


def check_steps_that_the_script_ends_itself_spare_absent_parameters_too() -> None:
    use = USES[0][1]
    model, reducer = sharded(topk(0.25))
    for step in range(STEPS):
        model.zero_grad()
        loss_of(model, step, RANK, use(step)).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter -= 0.1 * parameter.grad
        reducer.step_end()
    got = [one.full_tensor().detach() for one in model.parameters()]
    agree(got, simulated(0.25, use, momentum=0), "steps by hand")


def check_a_state_resumes_before_a_step_that_lacks_a_parameter() -> None:
    use = USES[0][1]
    model, reducer = sharded(topk(0.25))
    train(model, use, range(3))
    state = reducer.state_dict()
    again, resumed = sharded(topk(0.25))
    with torch.no_grad():
        for mine, theirs in zip(again.parameters(), model.parameters()):
            mine.copy_(theirs)
    resumed.load_state_dict(state)
    agree(train(again, use, range(3, 6)), train(model, use, range(3, 6)), "resumed")


def use_different_parameters() -> None:
    """Ends the run on every rank."""
    model, reducer = sharded(topk(0.25))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with expect(hvd.HorovodInternalError, "the results of its last step"):
        for step in range(2):
            optimizer.zero_grad()
            loss_of(model, step, RANK, RANK == 0).backward()
            optimizer.step()
        reducer.step_end()
    print("was told", flush=True)


if __name__ == "__main__":
    hvd.init()
    join_torch()
    if sys.argv[1:] == ["unequal"]:
        use_different_parameters()
    else:
        run_checks(globals())
        dist.destroy_process_group()
