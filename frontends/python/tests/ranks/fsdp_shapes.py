"""Shards of FSDP2 keep their shapes: low-rank methods and rules see matrices and vectors. The
oracle trains all ranks in one process, with one gradient for each shard that torch.chunk cuts."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any, Callable

import torch
import torch.distributed as dist
from ddp_support import SIZE, join_torch, part
from support import expect, run_checks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard

import penstock.torch as hvd
from penstock.torch import fsdp_shards
from penstock.torch.fsdp import PenstockReduceScatter, reduce_through_penstock

sys.path.append(str(Path(__file__).resolve().parents[4] / "tests"))
from oracle.low_rank import AcpSgd, PowerSgd  # noqa: E402
from oracle.method import Item, Method  # noqa: E402

STEPS = 3
OPTIONS = "rank = 2\nminimum_compression_rate = 0\n"


def low_rank(compressor: str) -> str:
    scheme = f'[scheme]\ncompressor = "{compressor}"\nmemory = "residual"\n'
    return f"{scheme}[compressor.{compressor}]\n{OPTIONS}"


def make_net() -> torch.nn.Sequential:
    """Rows that few numbers of ranks divide: 7 of a convolution, 5 of a linear layer."""
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 7, 3), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(28, 5)
    )


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    x, y = torch.randn(4 * SIZE, 2, 4, 4, generator=generator), torch.arange(4 * SIZE) % 5
    return x, y


def loss_of(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(x), y)


def sharded(
    scheme: str | None, model: torch.nn.Module | None = None, **options: Any
) -> tuple[Any, dict[str, PenstockReduceScatter]]:
    """The whole model as one module of FSDP2, and its reducers."""
    model = make_net() if model is None else model
    mesh = options.pop("mesh", None) or init_device_mesh("cpu", (SIZE,))
    fully_shard(model, mesh=mesh, **options)
    return model, reduce_through_penstock(model, scheme)


def steps_of(model: Any, optimizer: torch.optim.Optimizer, steps: range) -> list[float]:
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, *(part(one) for one in batch(step)))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def sgd(model: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def whole(model: Any) -> list[torch.Tensor]:
    return [one.full_tensor().detach().clone() for one in model.parameters()]


def simulated(make: Callable[[list[Item]], Method], dim_of: Any, ranks: int) -> list[torch.Tensor]:
    """The parameters after training with a method that has one gradient for each shard.

    dim_of: the dimension in which a parameter is cut. ranks: the number of shards; the ranks' data
    are those of SIZE ranks."""
    model = make_net()
    named = list(model.named_parameters())
    shards: list[tuple[int, str]] = []
    items = []
    for rank in range(ranks):
        for name, parameter in named:
            cut = parameter.chunk(ranks, dim_of(parameter))
            if rank < len(cut):
                items.append(Item(f"{rank} {name}", len(items), tuple(cut[rank].shape)))
                shards.append((rank, name))
    method = make(items)
    for step in range(STEPS):
        of_ranks = []
        for rank in range(SIZE):
            model.zero_grad()
            loss_of(model, *(one.chunk(SIZE)[rank] for one in batch(step))).backward()
            gradients = {name: one.grad.chunk(ranks, dim_of(one)) for name, one in named}
            of_ranks.append(
                {i.name: gradients[name][r].clone() for i, (r, name) in zip(items, shards)}
            )
        update = method.step(step, of_ranks)
        with torch.no_grad():
            for name, parameter in named:
                of_it = [update[i.name] for i, (_, of) in zip(items, shards) if of == name]
                parameter -= 0.1 * torch.cat(of_it, dim_of(parameter))
    return [one.detach() for one in model.parameters()]


def agrees(model: Any, expected: list[torch.Tensor]) -> None:
    for number, (got, wanted) in enumerate(zip(whole(model), expected)):
        torch.testing.assert_close(
            got, wanted, rtol=1e-4, atol=1e-5, msg=lambda text, n=number: f"parameter {n}: {text}"
        )


def methods() -> list[tuple[str, Callable[[list[Item]], Method]]]:
    def power(items: list[Item]) -> Method:
        return PowerSgd(items, SIZE, rank=2, minimum_compression_rate=0)

    def alternating(items: list[Item]) -> Method:
        return AcpSgd(items, SIZE, rank=2)

    return [("powersgd", power), ("acpsgd", alternating)]


def check_low_rank_methods_factor_the_shards_of_matrices_and_of_convolutions() -> None:
    for compressor, make in methods():
        model, _ = sharded(low_rank(compressor))
        steps_of(model, sgd(model), range(STEPS))
        agrees(model, simulated(make, lambda _: 0, SIZE))


def check_a_method_that_alternates_factors_trains() -> None:
    model, reducers = sharded(low_rank("powersgd-alternating"))
    optimizer = sgd(model)
    losses = [steps_of(model, optimizer, range(1))[0] for _ in range(30)]
    assert losses[-1] < 0.8 * losses[0], losses
    counted = reducers[""].counters()
    assert counted["payload_bytes"] < 0.8 * counted["gradient_bytes"], counted


def check_parameters_may_be_cut_in_another_dimension() -> None:
    def inner(parameter: torch.Tensor) -> int:
        return 1 if parameter.ndim == 2 and parameter.shape[1] % SIZE == 0 else 0

    model, _ = sharded(low_rank("powersgd"), shard_placement_fn=lambda one: Shard(inner(one)))
    steps_of(model, sgd(model), range(STEPS))
    agrees(model, simulated(methods()[0][1], inner, SIZE))


def check_replicas_of_shards_reduce_within_their_group() -> None:
    if SIZE != 4:
        return
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    model, _ = sharded('[scheme]\ncompressor = "powersgd"\n[compressor.powersgd]\n'
                       "rank = 256\nminimum_compression_rate = 0\n", mesh=mesh)  # fmt: skip
    plain = make_net()
    steps_of(model, sgd(model), range(STEPS))
    optimizer = sgd(plain)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(plain, *batch(step)).backward()
        optimizer.step()
    agrees(model, [one.detach() for one in plain.parameters()])


def check_rules_see_names_and_dimensions_of_parameters() -> None:
    scheme = """
[scheme]
compressor = "topk"
memory = "residual"
[compressor.topk]
density = 1e-6
[[rule]]
match = { dims = 1 }
compressor = "none"
[[rule]]
match = { name = "0.weight*" }
compressor = "none"
"""
    model, _ = sharded(scheme)
    plain = make_net()
    x, y = batch(0)
    loss_of(plain, x, y).backward()
    loss_of(model, part(x), part(y)).backward()
    found = {name: one.grad.full_tensor() for name, one in model.named_parameters()}
    for name, parameter in plain.named_parameters():
        if name == "3.weight":  # one entry of each rank in each shard
            assert 0 < found[name].count_nonzero() <= SIZE * SIZE
        else:
            torch.testing.assert_close(found[name], parameter.grad)


def check_training_with_low_rank_reaches_the_loss_of_dense_with_fewer_bytes() -> None:
    def net() -> torch.nn.Sequential:
        torch.manual_seed(5)
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(32, 256), torch.nn.Tanh(), torch.nn.Linear(256, 5)
        )

    last = {}
    factored = low_rank("powersgd").replace("minimum_compression_rate = 0", "")
    for scheme in (None, factored):
        model, reducers = sharded(scheme, net())
        optimizer = sgd(model)
        losses = [steps_of(model, optimizer, range(1))[0] for _ in range(30)]
        last[scheme] = hvd.allreduce(torch.tensor(losses[-1])).item()
        assert last[scheme] < 0.6 * hvd.allreduce(torch.tensor(losses[0])).item(), losses
    assert last[factored] < 1.05 * last[None], last
    counted = reducers[""].counters()
    assert counted["moved_bytes"] < 0.6 * counted["dense_moved_bytes"], counted


def check_low_rank_resumes_to_the_bit_and_states_of_other_gradients_are_refused() -> None:
    scheme = low_rank("powersgd")
    first, kept = sharded(scheme)
    steps_of(first, sgd(first), range(3))
    saved = kept[""].state_dict()
    before = whole(first)
    second, reducers = sharded(scheme)
    with torch.no_grad():
        for to, one in zip(second.parameters(), first.parameters()):
            to.copy_(one)
    reducers[""].load_state_dict(saved)
    for model in (first, second):
        steps_of(model, sgd(model), range(3, 6))
    assert not all(torch.equal(a, b) for a, b in zip(whole(first), before))
    assert all(torch.equal(a, b) for a, b in zip(whole(first), whole(second)))
    old = {key: one for key, one in saved.items() if key != "penstock.gradients"}
    with expect(ValueError, f"has {SIZE} gradients", "an older Penstock"):
        reducers[""].load_state_dict(old)


def check_parts_are_vectors_with_a_warning_where_torch_has_other_names() -> None:
    model, reducers = sharded(low_rank("powersgd"))
    name_of, fsdp_shards._name = fsdp_shards._name, lambda parameter, _: parameter.other_name
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            steps_of(model, sgd(model), range(1))
        finally:
            fsdp_shards._name = name_of
    counted = reducers[""].counters()
    assert counted["payload_bytes"] >= counted["gradient_bytes"], counted
    (told,) = [one for one in said if "have no shapes for Penstock" in str(one.message)]
    assert "other_name" in str(told.message)


def check_parameters_that_are_frozen_later_are_refused() -> None:
    model, _ = sharded(low_rank("powersgd"))
    steps_of(model, sgd(model), range(1))
    model[0].requires_grad_(False)
    with expect(ValueError, "freeze or unfreeze"):
        steps_of(model, sgd(model), range(1))


if __name__ == "__main__":
    hvd.init()
    join_torch()
    run_checks(globals())
    dist.destroy_process_group()
