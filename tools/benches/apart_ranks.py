"""One rank of tools/bench apart, started under torchrun's variables. Rank 0 prints one line of JSON: figures by contestant.

A step sleeps for the computation and then steps the inner optimizer (SGD) on parameters of a profile's shapes, with gradients
that are different on every rank. `alone` is the time of such a step without an exchange, measured in the same process. A round
lasts from one exchange to the next, on the slowest rank.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import penstock.torch as hvd
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benches.step import models  # noqa: E402

CONF = Path(__file__).resolve().parents[2] / "conf"
STEPS_ALONE = 10
ANOTHER = {"nesterov": hvd.OuterStep(), "none": None}


class Training:
    """The parameters of a profile, and steps that sleep for the computation."""

    def __init__(self, model: str, step_s: float) -> None:
        torch.manual_seed(0)
        self.parameters = [torch.nn.Parameter(0.02 * torch.randn(gradient.shape)) for gradient in models.read(model)]
        self.first = [parameter.detach().clone() for parameter in self.parameters]
        torch.manual_seed(1 + hvd.rank())
        for parameter in self.parameters:
            parameter.grad = torch.randn(parameter.shape).mul_(torch.randn(parameter.shape).exp_())
        self.step_s = step_s
        self.inner = torch.optim.SGD(self.parameters, lr=1e-4)

    def step(self, optimizer: Any) -> None:
        time.sleep(self.step_s)
        optimizer.step()

    def alone(self) -> float:
        """Seconds of a step without an exchange: the median over steps, on the slowest rank. Makes parameters equal again."""
        taken = []
        for _ in range(STEPS_ALONE):
            start = time.perf_counter()
            self.step(self.inner)
            taken.append(time.perf_counter() - start)
        for parameter, first in zip(self.parameters, self.first, strict=True):
            parameter.data.copy_(first)
        return max(everyone(statistics.median(taken)))


def everyone(mine: Any) -> list[Any]:
    return hvd.allgather_object(mine)


def check(parameters: list[torch.nn.Parameter], name: str) -> None:
    """SystemExit unless all ranks have equal finite parameters."""
    finite = all(bool(parameter.isfinite().all()) for parameter in parameters)
    sums = everyone([float(parameter.detach().double().sum()) for parameter in parameters])
    if not finite or any(theirs != sums[0] for theirs in sums):
        raise SystemExit(f"bench apart: {name} has left different parameters on the ranks, or some that are not finite")


def measure(training: Training, way: dict[str, Any], every: int, rounds: int, alone_s: float) -> dict[str, Any]:
    """The figures of one contestant. "wait_s": for results, on the rank that waits longest. "hides": the delay that hides an exchange, as the report says."""
    optimizer = hvd.LocalSteps(
        torch.optim.SGD(training.parameters, lr=1e-4),
        every=every,
        outer=ANOTHER[way["outer"]],
        scheme=str(CONF / f"{way['scheme']}.toml"),
        fragments=way["fragments"],
        delay=way["delay"],
        named_parameters=[(f"layers.{number}", parameter) for number, parameter in enumerate(training.parameters)],
    )
    taken, wait, cpu = [], [], []
    for number in range(1 + rounds):  # the first round plans, and is not counted
        before, cpu_before, waited_before = time.perf_counter(), time.process_time(), optimizer.counters()["wait_us"]
        for _ in range(every):
            training.step(optimizer)
        if number:
            taken.append(max(everyone(time.perf_counter() - before)))
            wait.append(max(everyone(1e-6 * (optimizer.counters()["wait_us"] - waited_before))))
            cpu.append(statistics.mean(everyone(time.process_time() - cpu_before)))
    hides = max(everyone(optimizer.report().get("delay_that_hides", way["delay"])))
    optimizer.synchronize()
    counted = optimizer.counters()  # its steps are exchanges of a fragment
    payload = counted["payload_bytes"] * way["fragments"] / counted["steps"]
    check(training.parameters, way["name"])
    optimizer.close()
    return {"round_s": taken, "wait_s": wait, "cpu_s": cpu, "alone_s": alone_s, "payload_bytes": payload, "delay": way["delay"], "hides": hides}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--step-ms", type=float, required=True)
    parser.add_argument("--every", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--ways", type=json.loads, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init(config_text='[scheme]\ncollective = "ucx"\n')
    training = Training(options.model, 1e-3 * options.step_ms)
    elements = sum(parameter.numel() for parameter in training.parameters)
    found: dict[str, Any] = {}
    hides: dict[str, int] = {}  # the delay that hides an exchange, by scheme
    for way in options.ways:
        alone_s = training.alone()
        if way["delay"] == "exchange":
            way["delay"] = min(hides[way["scheme"]], options.every // way["fragments"] - 1)
        rounds = 1 if way["scheme"] == "diloco" else options.rounds
        figures = measure(training, way, options.every, rounds, alone_s)
        hides[way["scheme"]] = figures["hides"]
        found[way["name"]] = figures
        if hvd.rank() == 0:
            print(f"[bench] apart: {way['name']}: a round took {statistics.median(figures['round_s']):.2f} s", file=sys.stderr, flush=True)
    if hvd.rank() == 0:
        print(json.dumps({"elements": elements, "ways": found}))
    hvd.shutdown()


if __name__ == "__main__":
    main()
