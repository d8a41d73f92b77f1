"""What the checks of LocalSteps share."""

from __future__ import annotations

from typing import Any

import torch
from local_steps_oracle import Way
from support import loss_of, make_batch

import penstock.torch as hvd

NONE = hvd.Scheme(compressor="none", memory="none")
TOPK = hvd.Scheme(
    compressor="topk",
    memory="residual",
    options={"compressor.topk": {"density": 0.25, "value_type": "fp32"}},
)
AVERAGE = hvd.OuterStep(lr=1.0, momentum=0.0)
STREAM = {"every": 12, "fragments": 3, "delay": 2, "mix": 0.5}


def make_model(dtype: torch.dtype = torch.float32) -> torch.nn.Sequential:
    """Four layers, of sizes of which a quarter is a whole number."""
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(5, 8),
        torch.nn.Tanh(),
        torch.nn.Linear(8, 8),
        torch.nn.Tanh(),
        torch.nn.Linear(8, 4, bias=False),
        torch.nn.Tanh(),
        torch.nn.Linear(4, 3, bias=False),
    ).to(dtype)  # fmt: skip


def batch_of(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    return make_batch(1000 * rank + step, 6)


def inner_of(model: torch.nn.Module, name: str = "adamw") -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.1)
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def train_once(model: Any, optimizer: Any, rank: int, step: int) -> None:
    optimizer.zero_grad()
    x, y = batch_of(rank, step)
    loss_of(model, x, y).backward()
    optimizer.step()


def wrap(model: torch.nn.Module, inner: Any = None, **arguments: Any) -> Any:
    arguments.setdefault("scheme", NONE)
    return hvd.LocalSteps(
        inner or inner_of(model), named_parameters=model.named_parameters(), **arguments
    )


def wrap_for(way: Way, model: torch.nn.Module, inner: Any, **arguments: Any) -> Any:
    return wrap(
        model,
        inner,
        every=way.every, fragments=way.fragments, delay=way.delay, mix=way.mix,
        outer=hvd.OuterStep(way.lr, way.momentum, way.nesterov),
        scheme=TOPK if way.density else NONE,
        **arguments,
    )  # fmt: skip


def train(model: Any, optimizer: Any, first: int, last: int) -> None:
    for step in range(first, last):
        train_once(model, optimizer, hvd.rank(), step)


def end(optimizer: Any) -> None:
    hvd.barrier()
    optimizer.close()


def anchors_are_equal(optimizer: Any) -> None:
    flat = torch.cat([anchor.reshape(-1) for anchor in optimizer.anchors().values()])
    for other in hvd.allgather(flat.reshape(1, -1)):
        assert torch.equal(flat, other), "anchors differ between ranks"


def copied(state: dict[str, Any]) -> dict[str, Any]:
    """The tensors as they are now."""
    return {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in state.items()}


@torch.no_grad()
def drift(model: torch.nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(100 * seed + hvd.rank())
    for parameter in model.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=generator))
