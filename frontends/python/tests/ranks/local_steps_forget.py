"""LocalSteps under [runtime] forget = false: refused where the scheme keeps values, because no
exchange could be thrown away; other schemes train. local_steps_forget.py FOLDER"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from local_steps_support import NONE, TOPK, anchors_are_equal, end, make_model, train, wrap
from support import expect, run_checks

import penstock.torch as hvd


def check_a_scheme_that_keeps_values_is_refused_with_both_remedies() -> None:
    model = make_model()
    with expect(ValueError, "[runtime] forget = false", "remove that line", 'memory = "none"'):
        wrap(model, every=2, scheme=TOPK)


def check_a_scheme_that_keeps_nothing_trains_and_throws_a_broken_drift_away() -> None:
    model = make_model()
    optimizer = wrap(model, every=2, scheme=NONE)
    train(model, optimizer, 0, 3)
    if hvd.rank() == 0:
        with torch.no_grad():
            next(model.parameters()).fill_(float("nan"))
    train(model, optimizer, 3, 4)
    assert all(bool(torch.isfinite(one).all()) for one in model.parameters())
    anchors_are_equal(optimizer)
    end(optimizer)


if __name__ == "__main__":
    file = Path(sys.argv[1]) / "forget.toml"
    hvd.init(config=str(file))
    run_checks(globals())
