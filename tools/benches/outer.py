"""The outer step of LocalSteps in copies of the parameters, for ResNet-50, on one thread and without the exchange: the drift, the
inspection of its mean, the outer step on the anchors, and the anchors' way into the parameters."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = "resnet50"
MOST_COPIES = 4.0
# The outer step's momentum by contestant: DiLoCo's step, and the mean that Local SGD and SparseLoCo take.
CONTESTANTS = {"Nesterov step (DiLoCo)": 0.9, "mean (SparseLoCo)": 0.0}


def measure(rounds: int) -> dict[str, Any]:
    """By contestant: copies of the parameters, by round, for the parts and for their sum. In a process of its own."""
    places = os.pathsep.join([str(REPOSITORY / "tools"), str(REPOSITORY / "frontends/python")])
    done = subprocess.run([sys.executable, "-m", "benches.outer", str(rounds)], env=os.environ | {"PYTHONPATH": places},
                          capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"bench: the outer step ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def table(figures: dict[str, Any], spread: Callable[[list[float]], str]) -> list[tuple[str, str, str]]:
    rows = []
    for name, of in figures.items():
        median, least, most = statistics.median(of["sum"]), min(of["sum"]), max(of["sum"])
        parts = ", ".join(f"{part} {statistics.median(of[part]):.2f}" for part in of if part != "sum")
        verdict = f"goal {MOST_COPIES:g}" + (", missed" if median > MOST_COPIES else "")
        rows.append((f"outer step, {name}, {MODEL}: copies of the parameters ({parts})", spread([median, least, most]), verdict))
    return rows


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def count(rounds: int) -> dict[str, Any]:
    import torch
    from benches.step.models import read

    import penstock.torch as hvd

    torch.set_num_threads(1)
    hvd.init(config_text='[scheme]\ncompressor = "none"\nmemory = "none"\nscheduler = "fusion"\n')
    figures = {}
    for name, momentum in CONTESTANTS.items():
        parameters = [torch.nn.Parameter(torch.randn(one.shape)) for one in read(MODEL)]
        others = [torch.empty_like(one) for one in parameters]
        outer = hvd.OuterStep(lr=0.7 if momentum else 1.0, momentum=momentum)
        optimizer = hvd.LocalSteps(torch.optim.SGD(parameters, lr=0.0), every=1, outer=outer)
        optimizer.step()
        found = [one_round(optimizer._rounds.fragments[0], outer, parameters, others) for _ in range(rounds + 1)][1:]
        figures[name] = {part: [one[part] for one in found] for part in found[0]}
        optimizer.close()
    hvd.shutdown()
    return figures


def one_round(fragment: Any, outer: Any, parameters: list[Any], others: list[Any]) -> dict[str, float]:
    """The parts of one outer step, each divided by a copy of all parameters that was made in this round."""
    import torch

    with torch.no_grad():
        copy = seconds(lambda: [to.copy_(of) for to, of in zip(others, parameters)])
        drift = seconds(lambda: [fragment._drift(one, number) for number, one in enumerate(parameters)])
    fragment.start()
    fragment.wait()
    inspect = seconds(fragment._judge)
    land = seconds(lambda: fragment.land(outer, 0.0))
    parts = {"drift": drift / copy, "inspection": inspect / copy, "outer step and parameters": land / copy}
    return parts | {"sum": sum(parts.values())}


if __name__ == "__main__":
    print(json.dumps(count(int(sys.argv[1]))))
