"""FSDP2's gradients reduced by Penstock, compared with training on the whole batch, and for each
call with the payloads of the scheme."""

from __future__ import annotations

import torch
import torch.distributed as dist
from ddp_support import RANK, SIZE, STEPS, join_torch, part, sgd, train
from support import close, expect, loss_of, make_batch, make_model, run_checks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import penstock.torch as hvd
from penstock.torch import fsdp_overlap
from penstock.torch.fsdp import PenstockReduceScatter, reduce_through_penstock

HALF = """
[scheme]
compressor = "topk"
memory = "residual"
[compressor.topk]
density = 0.5
"""


def in_layers(scheme: str | None) -> tuple[torch.nn.Module, dict[str, PenstockReduceScatter]]:
    """A model of which each layer was sharded by itself, and its reducers by layer."""
    model = make_model()
    mesh = init_device_mesh("cpu", (SIZE,))
    for layer in model:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, reduce_through_penstock(model, scheme)


def trained(scheme: str | None) -> torch.nn.Module:
    """A model of which each layer was sharded by itself; the parameters whole again."""
    model, reducers = in_layers(scheme)
    assert len(reducers) == 1 + len([1 for layer in model if any(True for _ in layer.parameters())])
    train(model, sgd(model, momentum=0.9))
    assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
    whole = make_model()
    with torch.no_grad():
        for to, sharded in zip(whole.parameters(), model.parameters()):
            to.copy_(sharded.full_tensor())
    return whole


def alone() -> torch.nn.Module:
    """The corresponding training by one process on the batches of all ranks."""
    model = make_model()
    optimizer = sgd(model, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        x, y = make_batch(step, 4 * SIZE)
        loss_of(model, x, y).backward()
        optimizer.step()
    return model


def check_without_a_scheme_training_is_that_on_the_whole_batch() -> None:
    close(trained(None), alone())


def check_an_uncompressed_scheme_gives_the_same() -> None:
    close(trained('[scheme]\ncompressor = "none"\n'), alone())


def check_an_exchange_goes_on_during_backward_of_the_layers_before_it() -> None:
    model, reducers = in_layers(HALF)
    x, y = (part(rows) for rows in make_batch(0, 4 * SIZE))
    seen: list[str] = []

    def look(*_: object) -> None:
        seen.extend(name for name, one in reducers.items() if one._under_way is not None)

    model[0].register_full_backward_pre_hook(look)
    for _ in range(2):
        model.zero_grad()
        loss_of(model, x, y).backward()
    assert seen, "every layer has waited for its exchange"
    assert not any(one._under_way for one in reducers.values())
    assert fsdp_overlap._under_way == []
    # A gradient that is there already is added to, which needs the result at once.
    seen.clear()
    loss_of(model, x, y).backward()
    assert seen == []


def check_gradients_accumulate() -> None:
    model, _ = in_layers('[scheme]\ncompressor = "none"\n')
    single = make_model()
    for step in range(2):
        x, y = make_batch(step, 4 * SIZE)
        loss_of(single, x, y).backward()
        loss_of(model, part(x), part(y)).backward()
    for sharded, whole in zip(model.parameters(), single.parameters()):
        torch.testing.assert_close(sharded.grad.full_tensor(), whole.grad)


# FSDP2 itself goes on only with another model.
def check_a_backward_that_fails_leaves_other_models_right() -> None:
    model, _ = in_layers('[scheme]\ncompressor = "none"\n')
    x, y = make_batch(0, 4 * SIZE)

    def fail(*_: object) -> None:
        raise RuntimeError("out of patience")

    handle = model[0].register_full_backward_pre_hook(fail)
    with expect(RuntimeError, "out of patience"):
        loss_of(model, part(x), part(y)).backward()
    handle.remove()
    model, _ = in_layers('[scheme]\ncompressor = "none"\n')
    single = make_model()
    loss_of(single, x, y).backward()
    loss_of(model, part(x), part(y)).backward()
    for sharded, whole in zip(model.parameters(), single.parameters()):
        torch.testing.assert_close(sharded.grad.full_tensor(), whole.grad)


def check_training_with_topk_learns_a_batch_by_heart() -> None:
    model = make_model()
    fully_shard(model, mesh=init_device_mesh("cpu", (SIZE,)))
    reduce_through_penstock(model, HALF)
    optimizer = sgd(model)
    x, y = (part(rows) for rows in make_batch(0, 4 * SIZE))
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
        losses.append(hvd.allreduce(loss.detach()).item())
    assert losses[-1] < 0.8 * losses[0], losses


def check_each_rank_gets_its_part_of_what_was_sent_and_the_rest_comes_later() -> None:
    rows = 8
    of_ranks = list(torch.randn(SIZE, rows * SIZE))  # equal on every rank
    sent = []
    for one in of_ranks:
        parts = one.view(SIZE, rows)
        largest = parts.abs().topk(rows // 2, dim=1).indices
        kept = torch.zeros_like(parts).scatter(1, largest, parts.gather(1, largest))
        sent.append(kept.flatten())
    mine = slice(rows * RANK, rows * (RANK + 1))
    exchange = PenstockReduceScatter(HALF)
    group = dist.group.WORLD
    first, second = torch.empty(rows), torch.empty(rows)
    exchange(first, of_ranks[RANK].clone(), group, dist.ReduceOp.AVG)
    exchange(second, torch.zeros(rows * SIZE), group, dist.ReduceOp.AVG)
    torch.testing.assert_close(first, sum(sent)[mine] / SIZE)
    torch.testing.assert_close(first + second, sum(of_ranks)[mine] / SIZE)
    assert exchange.counters()["steps"] == 2


def check_a_payload_goes_to_its_rank_and_no_further() -> None:
    n = 1 << 15
    exchange = PenstockReduceScatter('[scheme]\ncompressor = "signsgd"\nmemory = "none"\n')
    exchange(torch.empty(n), torch.randn(n * SIZE), dist.group.WORLD, dist.ReduceOp.AVG)
    signs = (SIZE - 1) * n / 8
    assert signs <= exchange.counters()["moved_bytes"] <= 1.02 * signs + 8


def check_a_sum_is_given_where_a_sum_is_asked_for() -> None:
    for scheme in (None, HALF.replace("0.5", "1.0")):
        result = torch.empty(3)
        flat = torch.arange(3.0 * SIZE) * (RANK + 1)
        PenstockReduceScatter(scheme)(result, flat, dist.group.WORLD, dist.ReduceOp.SUM)
        expected = torch.arange(3.0 * SIZE)[3 * RANK : 3 * (RANK + 1)] * (SIZE * (SIZE + 1) / 2)
        torch.testing.assert_close(result, expected)


def check_what_was_kept_goes_on_in_another_object() -> None:
    flat, zeros = torch.randn(4 * SIZE), torch.zeros(4 * SIZE)
    first = PenstockReduceScatter(HALF)
    assert first.state_dict() == {}
    parts = [torch.empty(4) for _ in range(3)]
    first(parts[0], flat.clone(), dist.group.WORLD, dist.ReduceOp.AVG)
    saved = first.state_dict()
    first(parts[1], zeros.clone(), dist.group.WORLD, dist.ReduceOp.AVG)
    second = PenstockReduceScatter(HALF)
    second.load_state_dict(saved)
    second(parts[2], zeros.clone(), dist.group.WORLD, dist.ReduceOp.AVG)
    assert hvd.allreduce(parts[1].abs().sum()) > 0  # something was kept
    assert torch.equal(parts[1], parts[2])
    other = {**saved, "penstock.ranks": torch.tensor(SIZE + 1)}
    with expect(ValueError, f"saved on {SIZE + 1} ranks, and there are {SIZE}"):
        second.load_state_dict(other)


def check_what_cannot_be_done_is_said() -> None:
    with expect(ValueError, "fully_shard"):
        reduce_through_penstock(make_model())
    flat, result = torch.ones(2 * SIZE), torch.empty(2)
    with expect(NotImplementedError, "set_force_sum_reduction_for_comms"):
        PenstockReduceScatter()(result, flat, dist.group.WORLD, dist.ReduceOp.MAX)
    exchange = PenstockReduceScatter(HALF)
    exchange(result, flat, dist.group.WORLD, dist.ReduceOp.AVG)
    with expect(ValueError, "belongs to one module"):
        exchange(torch.empty(3), torch.ones(3 * SIZE), dist.group.WORLD, dist.ReduceOp.AVG)


if __name__ == "__main__":
    hvd.init()
    join_torch()
    run_checks(globals())
    dist.destroy_process_group()
