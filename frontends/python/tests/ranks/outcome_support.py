"""One interface for the frontends of torch, for checks of outcomes: a DDP model with a hook, a
DistributedOptimizer, and FSDP2."""

from __future__ import annotations

import os
import re
from contextlib import nullcontext
from typing import Any, Callable

import torch
from ddp_support import SIZE, part, sgd
from support import loss_of, make_batch, make_model
from torch.nn.parallel import DistributedDataParallel

import penstock.torch as hvd
from penstock.torch import PenstockState, ddp_hook

try:
    from torch.distributed.fsdp import fully_shard

    from penstock.torch.fsdp import reduce_through_penstock

    HAS_FSDP2 = hasattr(torch.distributed.fsdp.FSDPModule, "set_custom_reduce_scatter")
except (ImportError, AttributeError):
    HAS_FSDP2 = False

HEAD = '[scheme]\nscheduler = "wfbp"\n'
DENSE = HEAD
TOPK = HEAD + 'compressor = "topk"\nmemory = "residual"\n[compressor.topk]\ndensity = 0.1\n'
SIGNS = HEAD + 'compressor = "efsign"\nmemory = "residual"\n'
LOW_RANK = HEAD + 'compressor = "powersgd"\nmemory = "residual"\n[compressor.powersgd]\nrank = 1\n'
MOMENTUM = (
    HEAD + 'compressor = "dgc"\nmemory = "dgc"\n[compressor.dgc]\ndensity = 0.1\n'
    "[memory.dgc]\nmomentum = 0.9\n"
)
KEEPING = {"topk": TOPK, "signs": SIGNS, "low rank": LOW_RANK, "momentum": MOMENTUM}


class Hook:
    """DistributedDataParallel with a PenstockState."""

    def __init__(
        self,
        scheme: str,
        model: torch.nn.Module | None = None,
        optimize: Callable[[torch.nn.Module], Any] = sgd,
        **options: Any,
    ) -> None:
        self.model = make_model() if model is None else model
        self.forward: Any = DistributedDataParallel(self.model, **options)
        self.kept = PenstockState(scheme)
        self.forward.register_comm_hook(self.kept, ddp_hook)
        self.optimizer = optimize(self.model)

    def averaged(self) -> None:
        """Backward is over, and every gradient is the average from now on."""

    def step(self) -> None:
        """The optimizer's step, after `averaged`."""
        self.optimizer.step()

    def local(self) -> Any:
        """A context in which a backward adds to gradients of this rank only."""
        return self.forward.no_sync()

    def set_scale(self, scale: float) -> None:
        self.kept.set_grad_scale(scale)

    def state(self) -> list[torch.Tensor]:
        """The values that compression keeps on this rank."""
        return [one.clone() for one in self.kept.state_dict().values()]

    def save(self) -> dict[str, Any]:
        return self.kept.state_dict()

    def load(self, saved: dict[str, Any]) -> None:
        self.kept.load_state_dict(saved)

    def counters(self) -> dict[str, int]:
        return self.kept.counters()

    def parameters(self) -> list[torch.Tensor]:
        return [one.detach().clone() for one in self.model.parameters()]

    def close(self) -> None:
        self.kept.close()


class Views(Hook):
    """DistributedDataParallel whose gradients are views of DDP's buckets."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, gradient_as_bucket_view=True, **options)


class Wrapped(Hook):
    """A DistributedOptimizer."""

    def __init__(
        self,
        scheme: str,
        model: torch.nn.Module | None = None,
        optimize: Callable[[torch.nn.Module], Any] = sgd,
    ) -> None:
        self.model = self.forward = make_model() if model is None else model
        self.optimizer: Any = hvd.DistributedOptimizer(
            optimize(self.model), self.model.named_parameters(), scheme=scheme
        )

    def averaged(self) -> None:
        self.optimizer.synchronize()

    def step(self) -> None:
        with self.optimizer.skip_synchronize():
            self.optimizer.step()

    def local(self) -> Any:
        raise NotImplementedError

    def set_scale(self, scale: float) -> None:
        self.optimizer.set_grad_scale(scale)

    def state(self) -> list[torch.Tensor]:
        return [one.clone() for one in self.optimizer.compression_state_dict().values()]

    def save(self) -> dict[str, Any]:
        return self.optimizer.compression_state_dict()

    def load(self, saved: dict[str, Any]) -> None:
        self.optimizer.load_compression_state_dict(saved)

    def counters(self) -> dict[str, int]:
        return self.optimizer.counters()

    def close(self) -> None:
        self.optimizer.close()


class Sharded(Hook):
    """A model that FSDP2 has sharded in three parts: two layers, and the rest. For several
    ranks."""

    def __init__(
        self,
        scheme: str,
        model: torch.nn.Module | None = None,
        optimize: Callable[[torch.nn.Module], Any] = sgd,
    ) -> None:
        self.model = self.forward = make_model() if model is None else model
        mesh = torch.distributed.init_device_mesh("cpu", (SIZE,))
        for layer in list(self.model)[1:]:  # type: ignore[call-overload]
            if list(layer.parameters()):
                fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.reducers = reduce_through_penstock(self.model, scheme)
        self.optimizer = optimize(self.model)

    def local(self) -> Any:
        self.forward.set_requires_gradient_sync(False)
        return nullcontext()

    def set_scale(self, scale: float) -> None:
        for one in self.reducers.values():
            one.set_grad_scale(scale)

    def state(self) -> list[torch.Tensor]:
        return [one.clone() for r in self.reducers.values() for one in r.state_dict().values()]

    def save(self) -> dict[str, Any]:
        return {name: one.state_dict() for name, one in self.reducers.items()}

    def load(self, saved: dict[str, Any]) -> None:
        for name, one in self.reducers.items():
            one.load_state_dict(saved[name])

    def counters(self) -> dict[str, int]:
        return next(iter(self.reducers.values())).counters()

    def parameters(self) -> list[torch.Tensor]:
        return [one.full_tensor().detach().clone() for one in self.model.parameters()]

    def close(self) -> None:
        pass


DOORS: list[Any] = [Hook, Views, Wrapped]
if HAS_FSDP2 and SIZE > 1:
    DOORS.append(Sharded)


def fits(door: Any, scheme: str) -> bool:
    """Memories with momentum do not work with FSDP2."""
    return door is not Sharded or scheme != MOMENTUM


def few_schemes(door: Any) -> dict[str, str]:
    """The schemes of KEEPING that fit a frontend. Outside of long runs two of them, and each
    scheme has at least one frontend."""
    names = [name for name, scheme in KEEPING.items() if fits(door, scheme)]
    if not os.environ.get("TEST_LONG"):
        first = DOORS.index(door)
        names = [(names * 2)[first], (names * 2)[first + 1]]
    return {name: KEEPING[name] for name in names}


def backward(door: Hook, step: int, factor: float = 1.0) -> None:
    """Forward and backward of this rank's part of a batch."""
    x, y = make_batch(step, 4 * SIZE)
    (loss_of(door.forward, part(x), part(y)) * factor).backward()


def plain(door: Hook, steps: range) -> None:
    """A loop as in every tutorial."""
    for step in steps:
        door.optimizer.zero_grad()
        backward(door, step)
        door.averaged()
        door.step()


def same(got: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """Equal to the bit."""
    assert len(got) == len(expected)
    for number, (a, b) in enumerate(zip(got, expected)):
        assert torch.equal(a, b), f"tensor {number} of {len(got)} differs"


def same_state(got: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """As `same`, for states of two sets, without the number in the set's name, its length and
    the checksum."""
    assert len(got) == len(expected)
    for one, other in zip(got, expected):
        a, b = (re.sub(rb"(ddp|optimizer|fsdp)\.\d+", b"set", _bytes(x)) for x in (one, other))
        assert len(a) == len(b), f"{len(a)} and {len(b)} bytes"
        differing = sum(x != y for x, y in zip(a, b))
        assert differing <= 10, f"{differing} of {len(a)} bytes differ"


def _bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.numpy().tobytes())
