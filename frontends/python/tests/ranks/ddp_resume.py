"""A checkpoint of model, optimizer and compression: a new process continues to the bit."""

from __future__ import annotations

import copy
import io
import sys
from contextlib import redirect_stderr
from pathlib import Path

import torch
from ddp_support import RANK, TOPK, bits_of, join_torch, same_bits, sgd, train, wrap
from support import make_model, run_checks

FILE = Path(sys.argv[1]) / f"rank{RANK}.pt"
SMALL = {"bucket_cap_mb": 0.0002}


def check_going_on() -> None:
    model = make_model()
    ddp, state = wrap(model, TOPK, **SMALL)
    optimizer = sgd(model, momentum=0.5)
    if sys.argv[2] == "resume":
        saved, losses, expected = torch.load(FILE)

        def back() -> None:
            model.load_state_dict(saved["model"])
            # An optimizer continues in the given tensors and changes them.
            optimizer.load_state_dict(copy.deepcopy(saved["optimizer"]))

        for _ in range(2):  # before the first backward, and in the middle of training
            back()
            state.load_state_dict(saved["compression"])
            assert train(ddp, optimizer, 8, first=8) == losses
            same_bits(bits_of(model), expected)
        back()
        assert train(ddp, optimizer, 8, first=8) != losses, "what is kept counts for nothing"
        return
    assert state.state_dict() == {}
    heard = io.StringIO()
    with redirect_stderr(heard):
        state.load_state_dict(state.state_dict())
    assert heard.getvalue().count("loaded on this rank is empty") == 1, heard.getvalue()
    train(ddp, optimizer, 8)
    parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    saved = copy.deepcopy({**parts, "compression": state.state_dict()})
    losses = train(ddp, optimizer, 8, first=8)
    torch.save((saved, losses, bits_of(model)), FILE)


if __name__ == "__main__":
    join_torch()
    run_checks(globals())
