"""LocalSteps: saved and restored at any step, a run goes on bit for bit."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import torch
from local_steps_support import STREAM, TOPK, copied, end, make_model, train, wrap
from support import expect, run_checks

import penstock.torch as hvd
from penstock.torch.state import tensor_of

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else None


def expect_to_resume(at: int, name: str, **arguments: Any) -> None:
    """Saved after step `at`, and loaded into a new model, a run ends with equal bits."""
    model = make_model()
    optimizer = wrap(model, **arguments)
    train(model, optimizer, 0, at)
    saved = {
        "model": copied(model.state_dict()),
        # The state of the rounds is not copied here: training that goes on must not change it.
        "optimizer": {
            **copy.deepcopy(optimizer.state_dict()),
            **optimizer.compression_state_dict(),
        },
    }
    train(model, optimizer, at, at + 15)
    final = copied(model.state_dict())
    if FOLDER is not None:  # for the run that goes on in other processes
        torch.save((saved, final), FOLDER / f"{name}.rank{hvd.rank()}.pt")
    end(optimizer)
    resume(saved, final, at, **arguments)


def resume(saved: Any, final: Any, at: int, **arguments: Any) -> None:
    model = make_model()
    optimizer = wrap(model, **arguments)
    train(model, optimizer, 50, 51)  # whatever it did before
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    train(model, optimizer, at, at + 15)
    for key, value in model.state_dict().items():
        assert torch.equal(value, final[key]), f"{key} differs after a resume"
    end(optimizer)


RESUMES: dict[str, tuple[int, dict[str, Any]]] = {
    "inside a round": (9, {"every": 6, "scheme": TOPK}),
    "between two fragments": (15, {**STREAM, "scheme": TOPK}),
    "with an exchange under way": (13, {**STREAM, "scheme": TOPK}),
    "before the first step": (0, {"every": 4, "scheme": TOPK}),
}


def check_resumes_to_the_bit() -> None:
    for name, (at, arguments) in RESUMES.items():
        expect_to_resume(at, name, **arguments)


def resume_in_other_processes() -> None:
    assert FOLDER is not None
    for name, (at, arguments) in RESUMES.items():
        saved, final = torch.load(FOLDER / f"{name}.rank{hvd.rank()}.pt", weights_only=False)
        resume(saved, final, at, **arguments)


def check_a_state_of_other_settings_is_refused() -> None:
    model = make_model()
    optimizer = wrap(model, every=4)
    train(model, optimizer, 0, 2)
    good = copied(optimizer.compression_state_dict())
    for name in ("", ".set.0", ".anchors.0.weight", ".momenta.0.weight"):
        key = f"penstock{name}"
        with expect(ValueError, f'"{key}"'):
            optimizer.load_compression_state_dict({k: v for k, v in good.items() if k != key})
    for dtype in (torch.int64, torch.bool, torch.complex64):
        anchor = good["penstock.anchors.0.weight"].to(dtype)
        with expect(ValueError, f"{dtype} of shape", "expected floats"):
            optimizer.load_compression_state_dict({**good, "penstock.anchors.0.weight": anchor})
    for header in (b'{"steps": -5}', b'{"steps": true}', b"[" * 100_000, b'{"steps"'):
        with expect(ValueError, "were not saved by LocalSteps"):
            optimizer.load_compression_state_dict({**good, "penstock": tensor_of(header)})
    end(optimizer)
    other = wrap(model, every=5)
    with expect(ValueError, "every 4, expected 5"):
        other.load_compression_state_dict(good)
    end(other)


if __name__ == "__main__":
    hvd.init()
    is_later = sys.argv[2:] == ["resume"]
    run_checks({"check_resume": resume_in_other_processes} if is_later else globals())
