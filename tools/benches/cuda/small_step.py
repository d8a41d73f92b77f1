"""The time that the exchange of one small gradient adds to a step: microseconds by scheme, for a gradient of 4 KB on one device.

    mpirun -np 1 python tools/benches/cuda/small_step.py [--output FILE] [--device cuda] [--rounds 200]

A step is backward, synchronize and a wait for the device. Steps with and without the exchange take turns. In a run of one rank
nothing goes over a network, so the figure is the time in which the runtime's threads learn the state of the device. If there is no
device it says "skipped" and why.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOOLS), str(TOOLS.parent / "frontends/python/tests/scripts")]

from train_on_device import is_first_rank, why_not  # noqa: E402

SCHEMES = {
    "none": '[scheme]\nscheduler = "wfbp"\n',
    "topk": '[scheme]\ncompressor = "topk"\nmemory = "residual"\nscheduler = "wfbp"\n',
}
ELEMENTS, WARM_UP = 1024, 20


class Step:
    """One parameter; its gradient is exchanged by a scheme, or by none."""

    def __init__(self, device: Any, scheme: str | None) -> None:
        import penstock.torch as hvd
        import torch

        self.device = device
        self.parameter = torch.nn.Parameter(torch.zeros(ELEMENTS, device=device))
        self.factor = torch.randn(ELEMENTS, device=device)
        plain = torch.optim.SGD([self.parameter], lr=0.0)
        self.optimizer: Any = hvd.DistributedOptimizer(plain, [("parameter", self.parameter)], scheme=scheme) if scheme else None

    def microseconds(self) -> float:
        from benches.cuda.stand_in import wait

        self.parameter.grad = None
        wait(self.device)
        start = time.perf_counter()
        (self.parameter * self.factor).sum().backward()
        if self.optimizer:
            self.optimizer.synchronize()
        wait(self.device)
        taken = 1e6 * (time.perf_counter() - start)
        if self.optimizer:
            with self.optimizer.skip_synchronize():
                self.optimizer.step()
        return taken

    def close(self) -> None:
        if self.optimizer:
            self.optimizer.close()


def measure(device: Any, rounds: int) -> dict[str, Any]:
    steps = {"no exchange": Step(device, None), **{name: Step(device, scheme) for name, scheme in SCHEMES.items()}}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(WARM_UP + rounds):
        for name, step in steps.items():
            taken = step.microseconds()
            if number >= WARM_UP:
                times[name].append(taken)
    for step in steps.values():
        step.close()
    rows = [
        {"scheme": name, "us": [statistics.median(of), min(of), max(of)], "added_us": statistics.median(of) - statistics.median(times["no exchange"])}
        for name, of in times.items()
    ]
    return {"bytes": 4 * ELEMENTS, "rounds": rounds, "rows": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="JSON for programs")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}, expected at least 1")
    reason = why_not(options.device)
    found: dict[str, Any] = {"skipped": reason}
    if not reason:
        import penstock.torch as hvd
        import torch

        hvd.init()
        device = torch.device(options.device)
        name = torch.cuda.get_device_name(0) if options.device == "cuda" else "cpu"
        found = {"device": name, "ranks": hvd.size(), **measure(device, options.rounds)}
        hvd.shutdown()
    if is_first_rank():
        if options.output:
            options.output.write_text(json.dumps(found) + "\n")
        lines = [f"{row['scheme']}: {row['us'][0]:.0f} us, {row['added_us']:+.0f} us" for row in found.get("rows", [])]
        print("\n".join(lines) if lines else f"skipped: {reason}")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
