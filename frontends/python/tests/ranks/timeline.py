"""A timeline that every rank starts with one path: one file, written by rank 0, that a viewer
can open."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import torch
from support import run_checks

import penstock.torch as hvd

TRACE = Path(sys.argv[1]) / "timeline.json"


def check_only_rank_0_writes_the_file() -> None:
    hvd.start_timeline(str(TRACE))
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    optimizer.close()
    # One rank after the other, so that the file of the last rank would remain.
    for rank in range(hvd.size()):
        if hvd.rank() == rank:
            hvd.stop_timeline()
        hvd.barrier()
    events = json.loads(TRACE.read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0}, "the file is not rank 0's"
    assert any(event["ph"] == "X" for event in events), "the file has no stage of a bucket"
    assert [file.name for file in TRACE.parent.iterdir()] == [TRACE.name], "there are other files"
    hvd.barrier()  # every rank has read the file


def check_marked_cycles_are_refused_with_a_warning_and_the_timeline_starts() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        hvd.start_timeline(str(TRACE), mark_cycles=True)
    hvd.stop_timeline()
    hvd.barrier()
    assert ["mark_cycles" in str(one.message) for one in said] == [True]
    assert TRACE.exists()


if __name__ == "__main__":
    hvd.init()
    run_checks(globals())
