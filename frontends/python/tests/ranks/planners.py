"""Schedulers that plan from measured times, over real MPI, with ranks that are late at random.
With every plan and after every new plan, training equals wait-free back-propagation."""

from __future__ import annotations

import random
import time
from typing import Any

import torch
from support import close, loss_of, make_batch, make_model, mine, run_checks, same_bits_on_all_ranks

import penstock.torch as hvd

STEPS = 12
SCHEDULERS = ("syncea", "fgbuff", "mgwfbp", "omgs", "rgmerge", "optimal")
METHODS = {
    "none": 'compressor = "none"\nmemory = "none"\n',
    "topk": 'compressor = "topk"\nmemory = "residual"\n[compressor.topk]\ndensity = 0.1\n',
}


def text_of(method: str, scheduler: str) -> str:
    text = f'[scheme]\nscheduler = "{scheduler}"\n{METHODS[method]}'
    if scheduler not in ("wfbp", "syncea"):
        text += f"[scheduler.{scheduler}]\nprofile_steps = 2\nunmeasured_count = 2\n"
    return text


def trained(scheme: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    model = make_model()
    chance = random.Random(hvd.rank())
    for parameter in model.parameters():
        parameter.register_hook(lambda _: time.sleep(chance.random() * 2e-3))
    optimizer: Any = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        named_parameters=model.named_parameters(),
        scheme=scheme,
    )
    for step in range(STEPS):
        optimizer.zero_grad()
        x, y = make_batch(step, 4 * hvd.size())
        loss_of(model, mine(x), mine(y)).backward()
        optimizer.step()
    report = optimizer.report()
    optimizer.close()
    return model, report


def check_every_planner_trains_like_wait_free_back_propagation() -> None:
    for method in METHODS:
        expected, _ = trained(text_of(method, "wfbp"))
        for scheduler in SCHEDULERS:
            model, report = trained(text_of(method, scheduler))
            same_bits_on_all_ranks(model)
            close(model, expected)
            said = " ".join(report["explanation"])
            assert "nothing is measured" not in said, f"{scheduler} never planned: {said}"


def check_partial_sparsification_chooses_after_it_has_measured() -> None:
    scheme = (
        '[scheme]\ncompressor = "topk"\nmemory = "residual"\nscheduler = "partial"\ncandidates = ["topk", "none"]\n'
        "[compressor.topk]\ndensity = 0.1\n[scheduler.partial]\nprofile_steps = 2\nbucket_count = 2\n"
    )
    model, report = trained(scheme)
    same_bits_on_all_ranks(model)
    assert all("gradients dense; encode, exchange" in line for line in report["explanation"]), report["explanation"]
    chosen = {item["compressor"] for bucket in report["buckets"] for item in bucket["items"]}
    assert chosen <= {"topk", "none"}, chosen


if __name__ == "__main__":
    hvd.init()
    run_checks(globals())
