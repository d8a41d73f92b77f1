"""State of compression: with a restored state a run continues to the bit, without it the run
differs."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import torch
from support import (
    expect,
    loss_of,
    make_batch,
    make_model,
    mine,
    run_checks,
    same_bits_on_all_ranks,
)

import penstock.torch as hvd

CONFIG = """
[scheme]
compressor = "topk"
memory = "residual"
[compressor.topk]
density = 0.05
"""


FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else None
RESUME = sys.argv[2:] == ["resume"]


def build() -> tuple[torch.nn.Module, Any]:
    model = make_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, hvd.DistributedOptimizer(inner, named_parameters=model.named_parameters())


def train(model: torch.nn.Module, optimizer: Any, first: int, last: int) -> list[float]:
    losses = []
    for step in range(first, last):
        optimizer.zero_grad()
        x, y = make_batch(step, 4 * hvd.size())
        loss = loss_of(model, mine(x), mine(y))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def saved(model: torch.nn.Module, optimizer: Any) -> dict[str, Any]:
    return copy.deepcopy(
        {
            "model": model.state_dict(),
            "optimizer": {**optimizer.state_dict(), **hvd.state_dict(optimizer)},
        }
    )


def same(model: torch.nn.Module, parameters: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(p, parameters[name]) for name, p in model.state_dict().items())


def check_going_back_is_bit_identical() -> None:
    model, optimizer = build()
    train(model, optimizer, 0, 10)
    checkpoint = saved(model, optimizer)
    tail = train(model, optimizer, 10, 20)
    same_bits_on_all_ranks(model)
    final = copy.deepcopy(model.state_dict())
    if FOLDER is not None:  # for the run that goes on in other processes
        torch.save((checkpoint, tail, final), FOLDER / f"rank{hvd.rank()}.pt")

    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    assert train(model, optimizer, 10, 20) == tail
    assert same(model, final), "parameters differ after a resume"

    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict({k: v for k, v in checkpoint["optimizer"].items() if k != "penstock"})
    optimizer.reset_compression_state()
    train(model, optimizer, 10, 20)
    assert not same(model, final), "residuals made no difference: their loss would go unseen"


def resume_in_other_processes() -> None:
    assert FOLDER is not None
    checkpoint, tail, final = torch.load(FOLDER / f"rank{hvd.rank()}.pt", weights_only=False)
    model, optimizer = build()
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    assert train(model, optimizer, 10, 20) == tail
    assert same(model, final), "parameters differ after a resume"


def check_own_state_dict_stays_torchs() -> None:
    model, optimizer = build()
    train(model, optimizer, 0, 2)
    assert set(optimizer.state_dict()) == {"state", "param_groups"}
    plain = torch.optim.SGD(make_model().parameters(), lr=0.5, momentum=0.1)
    plain.load_state_dict(optimizer.state_dict())
    assert plain.param_groups[0]["lr"] == 0.1


def check_garbage_is_refused() -> None:
    model, optimizer = build()
    train(model, optimizer, 0, 2)
    good = optimizer.compression_state_dict()["penstock"]
    for wrong in ({}, {"penstock": 3}, {"penstock": torch.ones(3)}):
        with expect(ValueError, "penstock"):
            optimizer.load_compression_state_dict(wrong)
    for wrong in (good[: len(good) // 2], torch.zeros(100, dtype=torch.uint8), good[:0]):
        try:
            optimizer.load_compression_state_dict({"penstock": wrong})
        except (ValueError, hvd.HorovodInternalError):
            continue
        raise AssertionError(f"{len(wrong)} bytes of garbage were taken for a state")
    optimizer.load_compression_state_dict({"penstock": good})
    train(model, optimizer, 2, 4)


def check_reset_forgets() -> None:
    model, optimizer = build()
    parameters, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    first = train(model, optimizer, 0, 5)
    for _ in range(2):
        model.load_state_dict(parameters)
        optimizer.load_state_dict(copy.deepcopy(state))
        optimizer.reset_compression_state()
        assert train(model, optimizer, 0, 5) == first


if __name__ == "__main__":
    hvd.init(config_text=CONFIG)
    run_checks({"check_resume": resume_in_other_processes} if RESUME else globals())
