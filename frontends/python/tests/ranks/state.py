"""State of compression: saved and restored, a run goes on bit for bit; forgotten, it does not."""

from __future__ import annotations

import copy
import sys
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


def check_resume_is_bit_identical() -> None:
    model, optimizer = build()
    train(model, optimizer, 0, 10)
    checkpoint = saved(model, optimizer)
    tail = train(model, optimizer, 10, 20)
    same_bits_on_all_ranks(model)

    again, other = build()
    again.load_state_dict(checkpoint["model"])
    other.load_state_dict(checkpoint["optimizer"])
    assert train(again, other, 10, 20) == tail
    for p, q in zip(model.parameters(), again.parameters()):
        assert torch.equal(p, q), "parameters differ after a resume"

    forgetful, third = build()
    forgetful.load_state_dict(checkpoint["model"])
    third.load_state_dict({k: v for k, v in checkpoint["optimizer"].items() if k != "penstock"})
    assert train(forgetful, third, 10, 20) != tail, (
        "residuals made no difference: this check would not see their loss"
    )


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
    train(model, optimizer, 0, 5)
    optimizer.reset_compression_state()
    fresh, other = build()
    fresh.load_state_dict(model.state_dict())
    other.load_state_dict(optimizer.state_dict())
    assert train(model, optimizer, 5, 8) == train(fresh, other, 5, 8)


if __name__ == "__main__":
    hvd.init(config_text=CONFIG)
    run_checks(globals(), tuple(sys.argv[1:]))
