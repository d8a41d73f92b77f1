"""The doors of doors.py: one model behind each, as a script would put it there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from ddp_support import RANK, SIZE, join_torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import penstock.torch as hvd
from penstock.torch.fsdp import reduce_through_penstock

MEMBERS = (0, 1)  # of the process group that has some ranks only
RATE = 0.1
DENSE = "[scheme]\n"
HALF = (
    '[scheme]\ncompressor = "topk"\nmemory = "residual"\n'
    '[compressor.topk]\ndensity = 0.5\nvalue_type = "fp32"\n'
)


# By ranks: their process set of Penstock, their group of torch, and its mesh.
some: dict[Any, tuple[hvd.ProcessSet, Any, Any]] = {}


def meet() -> None:
    """Begins, with process groups of some ranks."""
    members = hvd.ProcessSet(MEMBERS)
    hvd.init(process_sets=[members])
    join_torch()
    group = dist.new_group(list(MEMBERS))
    mesh = DeviceMesh.from_group(group, "cpu") if RANK in MEMBERS else None
    some[MEMBERS] = members, group, mesh


class Net(torch.nn.Module):
    """Of two branches, one of which a step may leave out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.other = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)

    def forward(self, x: torch.Tensor, both: bool = True) -> torch.Tensor:
        return self.first(x) + self.other(x) if both else self.first(x)


def batch(step: int, rank: int) -> torch.Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(100 * step + rank))


def loss_of(module: Any, step: int, rank: int, both: bool = True) -> torch.Tensor:
    x = batch(step, rank)
    return (module(x, both) - x.flip(0)).square().mean()


@dataclass
class Door:
    """A model behind a door, as a script uses it."""

    module: Any  # what is called
    optimizer: Any
    tellers: list[Any]  # the objects with step_end, let_go and set_grad_scale
    states: list[Any] = field(default_factory=list)  # the objects with the saved state
    alone: Callable[[bool], AbstractContextManager[None]] = lambda is_last: nullcontext()
    waits: Callable[[], None] = lambda: None  # until the means are in p.grad
    steps: Callable[[], None] | None = None  # after `waits`

    def backward(
        self, step: int, both: bool = True, is_last: bool = True, factor: float = 1.0
    ) -> None:
        """Of this rank's batch."""
        with self.alone(is_last):
            (loss_of(self.module, step, RANK, both) * factor).backward()

    def step(self) -> None:
        (self.steps or self.optimizer.step)()

    def train(self, steps: range) -> None:
        for step in steps:
            self.optimizer.zero_grad()
            self.backward(step)
            self.waits()
            self.step()

    def whole(self) -> list[torch.Tensor]:
        """The parameters."""
        return [
            (one.full_tensor() if hasattr(one, "full_tensor") else one).detach().clone()
            for one in self.module.parameters()
        ]


Make = Callable[..., Door]


def sgd(net: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=RATE)


def by_optimizer(
    net: torch.nn.Module, scheme: Any = DENSE, passes: int = 1, ranks: Any = None
) -> Door:
    more = {} if ranks is None else {"process_set": some[ranks][0]}
    optimizer = hvd.DistributedOptimizer(
        sgd(net),
        net.named_parameters(),
        backward_passes_per_step=passes,
        scheme=scheme,
        **more,
    )

    def steps() -> None:
        with optimizer.skip_synchronize():
            optimizer.step()

    return Door(net, optimizer, [optimizer], [optimizer], waits=optimizer.synchronize, steps=steps)


def by_hook(
    net: torch.nn.Module, scheme: Any = DENSE, passes: int = 1, ranks: Any = None
) -> Door:
    group = None if ranks is None else some[ranks][1]
    ddp = DistributedDataParallel(net, process_group=group, find_unused_parameters=True)
    state = hvd.PenstockState(scheme)
    ddp.register_comm_hook(state, hvd.ddp_hook)
    optimizer = sgd(net)

    def alone(is_last: bool) -> AbstractContextManager[None]:
        return nullcontext() if is_last else ddp.no_sync()

    return Door(ddp, optimizer, [state], [state], alone)


def by_fsdp2(
    net: torch.nn.Module, scheme: Any = DENSE, passes: int = 1, ranks: Any = None
) -> Door:
    mesh = init_device_mesh("cpu", (SIZE,)) if ranks is None else some[ranks][2]
    fully_shard(net, mesh=mesh)
    reducers = list(reduce_through_penstock(net, scheme).values())

    @contextmanager
    def alone(is_last: bool) -> Iterator[None]:
        net.set_requires_gradient_sync(is_last)
        yield

    return Door(net, sgd(net), reducers, reducers, alone)


def by_local_steps(
    net: torch.nn.Module, scheme: Any = DENSE, passes: int = 1, ranks: Any = None
) -> Door:
    more = {} if ranks is None else {"process_set": some[ranks][0]}
    optimizer = hvd.LocalSteps(
        sgd(net),
        every=1,
        outer=hvd.OuterStep(lr=1.0, momentum=0.0),
        scheme=scheme,
        named_parameters=net.named_parameters(),
        **more,
    )
    return Door(net, optimizer, [optimizer], [optimizer])


DOORS: dict[str, Make] = {
    "`DistributedOptimizer`": by_optimizer,
    "`ddp_hook`": by_hook,
    "FSDP2": by_fsdp2,
    "`LocalSteps`": by_local_steps,
}
