"""Whole steps of the gradients of ResNet-50 and GPT-2 small on one device, through penstock.torch, with several schemes.

    mpirun -np 2 python tools/benches/cuda/step_on_device.py [--output FILE] [--device cuda] [--rounds 9] [--models resnet50 gpt2]

Backward is a stand-in (stand_in.py). All ranks are on the first device. If there are more devices and two ranks, DDP over NCCL
runs beside ddp_hook too, with a device for each rank. Schemes take turns, two steps each, with steps that only compute. A figure
is the median of rounds, with its least and most. torch.profiler shows the work of the device and the waits of the host, in steps
that are not timed. If there is no device, or no CUDA part of the runtime, it says "skipped" and why. With --device cpu it only
times steps.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOOLS), str(TOOLS.parent / "frontends/python/tests/scripts")]

from benches.step import models  # noqa: E402
from train_on_device import is_first_rank, why_not  # noqa: E402

# A further way to bring gradients through is a line here.
FP16 = '[scheme]\ncompressor = "fp16"\nmemory = "residual"\nscheduler = "fusion"\n'
SCHEMES: dict[str, str] = {
    "none": "dense", "fp16": FP16, "topk-residual": "topk-residual", "power-sgd": "power-sgd", "acp-sgd": "acp-sgd", "ef-sign": "ef-sign",
}  # fmt: skip
ALONE = "compute alone"
WARM_UP, STEPS_A_ROUND = 4, 2  # even: methods may alternate
PROFILED = 4


def scheme_text(name: str) -> str:
    """The TOML of a scheme: from SCHEMES, or from a file of conf/."""
    from benches.step import contestants

    named = SCHEMES[name]
    return named if named.startswith("[") else contestants.scheme_of(named)


def spread(values: list[float]) -> list[float]:
    return [statistics.median(values), min(values), max(values)]


class Contestant:
    """The stand-in with its gradients exchanged by one scheme, or by none."""

    def __init__(self, name: str, backward: Any) -> None:
        import penstock.torch as hvd
        import torch

        from benches.cuda.stand_in import Layers

        self.name, self.backward = name, backward
        self.model = Layers(backward)
        plain = torch.optim.SGD(self.model.parameters(), lr=0.0)
        names = [(one.name, weight) for one, weight in zip(backward.gradients, self.model.weights, strict=True)]
        self.optimizer: Any = None if name == ALONE else hvd.DistributedOptimizer(plain, names, scheme=scheme_text(name))

    def run(self) -> None:
        """Runs from the beginning of backward until the results can be used."""
        self.model().backward()
        if self.optimizer:
            self.optimizer.synchronize()

    def end(self) -> None:
        if self.optimizer:
            with self.optimizer.skip_synchronize():
                self.optimizer.step()

    def step(self) -> None:
        self.backward.begin()
        self.model.zero_grad(set_to_none=True)
        self.run()
        self.end()

    def timed_ms(self) -> float:
        """Of a step, until the device has come to its end. All ranks begin together; this one's time."""
        import penstock.torch as hvd

        from benches.cuda.stand_in import wait

        total = 0.0
        for _ in range(STEPS_A_ROUND):
            self.backward.begin()
            self.model.zero_grad(set_to_none=True)
            wait(self.backward.device)
            hvd.barrier()
            start = time.perf_counter()
            self.run()
            wait(self.backward.device)
            total += time.perf_counter() - start
            self.end()
        return 1e3 * total / STEPS_A_ROUND

    def plan(self) -> dict[str, Any]:
        """Buckets of one step, gradients worked on on the device, and why the first of the others is not."""
        buckets = self.optimizer.report()["buckets"]
        items = [item for bucket in buckets for item in bucket["items"] if bucket["phase"] == 0]
        reasons = [item["why_staged"] for item in items if item["why_staged"]]
        return {
            "buckets": sum(bucket["phase"] == 0 for bucket in buckets),
            "gradients": len({item["gradient"] for item in items}),
            "on_device": len({item["gradient"] for item in items if item["worked_on"].startswith("cuda")}),
            "why_staged": reasons[0] if reasons else "",
        }

    def close(self) -> None:
        if self.optimizer:
            self.optimizer.close()


def profiled(contestant: Contestant) -> dict[str, Any]:
    """The figures of events.py for steps under the profiler. Waits and allocations are the largest numbers of all ranks."""
    import penstock.torch as hvd
    from torch.profiler import ProfilerActivity, profile, record_function

    from benches.cuda import events
    from benches.cuda.stand_in import wait

    device = contestant.backward.device
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    wait(device)
    hvd.barrier()
    with profile(activities=activities) as profiler:
        for _ in range(PROFILED):
            with record_function(events.STEP):
                contestant.step()
        wait(device)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        own = dataclasses.asdict(events.figures(json.loads(trace.read_text())["traceEvents"]))
    everyone = hvd.allgather_object(own)
    for name in ("waits", "allocations"):
        counts = [rank[name] for rank in everyone]
        own[name] = None if None in counts else max(counts)
    own["unseen"] = next((rank["unseen"] for rank in everyone if rank["unseen"]), "")
    return own


def copy_ms(backward: Any, rounds: int) -> list[float]:
    """A copy of all gradients on the device, by its events."""
    import torch

    source, target = backward.source[: backward.elements], torch.empty(backward.elements, device=backward.device)
    found = []
    for _ in range(rounds + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end))
    return spread(found[1:])


def rounds_of(contestants: list[Contestant], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of a step on the slowest rank, by round."""
    import penstock.torch as hvd

    times: dict[str, list[float]] = {one.name: [] for one in contestants}
    for _ in range(rounds):
        for one in contestants:
            times[one.name].append(max(hvd.allgather_object(one.timed_ms())))
    return times


def measure(model: str, options: argparse.Namespace, device: Any) -> dict[str, Any]:
    import penstock.torch as hvd

    from benches.cuda.stand_in import Backward, Products

    products = Products(device)
    products.each_ms = statistics.mean(hvd.allgather_object(products.each_ms))
    backward = Backward(models.read(model, options.profiles), products, options.backward_ms, device, hvd.rank())
    contestants = [Contestant(name, backward) for name in (ALONE, *options.schemes)]
    for one in contestants:
        for _ in range(WARM_UP):
            one.step()
    times = rounds_of(contestants, options.rounds)
    on_cuda = device.type == "cuda"
    result: dict[str, Any] = {
        "model": model, "gradients": len(backward.gradients), "bytes": 4 * backward.elements, "compute_ms": spread(times[ALONE]),
        "copy_ms": copy_ms(backward, options.rounds) if on_cuda else None, "schemes": [],
    }  # fmt: skip
    for one in contestants[1:]:
        not_hidden = [step - alone for step, alone in zip(times[one.name], times[ALONE], strict=True)]
        row = {"scheme": one.name, "step_ms": spread(times[one.name]), "not_hidden_ms": spread(not_hidden), **one.plan()}
        seen = profiled(one)
        row["device"] = seen if on_cuda else None
        row["why_no_device_figures"] = "" if on_cuda else seen["unseen"]
        result["schemes"].append(row)
    for one in contestants:
        one.close()
    return result


def keep(found: dict[str, Any], options: argparse.Namespace) -> None:
    """Writes the results so far, so that they are kept if the run is cut off."""
    if options.output and is_first_rank():
        options.output.write_text(json.dumps(found) + "\n")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """On every rank; all get the figures."""
    import penstock.torch as hvd
    import torch

    from benches.cuda import ddp_on_devices

    device = torch.device("cpu")
    if options.device == "cuda":
        device = torch.device("cuda", 0)
        torch.cuda.set_device(device)
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if options.device == "cuda" else "cpu",
        "torch": torch.__version__, "cuda": torch.version.cuda, "ranks": hvd.size(), "rounds": options.rounds, "models": [],
    }  # fmt: skip
    for model in options.models:
        found["models"].append(measure(model, options, device))
        keep(found, options)
    reason = ddp_on_devices.why_not(options.device)
    if reason:
        found["ddp"] = {"skipped": reason}
    else:  # a device for each rank now, and between them NCCL for both
        hvd.shutdown()
        hvd.init(config_text=ddp_on_devices.OVER_NCCL)
        found["ddp"] = ddp_on_devices.measure(options, torch.device("cuda", hvd.local_rank()), "nccl")
    keep(found, options)
    return found


def lines(found: dict[str, Any]) -> list[str]:
    """For people."""

    def of(values: list[float], unit: str = " ms") -> str:
        return "{:.2f}{unit} ({:.2f} to {:.2f})".format(*values, unit=unit)

    lines = []
    for model in found["models"]:
        lines.append(f"{model['model']}, {model['gradients']} gradients, {found['ranks']} ranks on {found['device']}: compute alone {of(model['compute_ms'])}")
        for row in model["schemes"]:
            device = row["device"]
            lines.append(f"  {row['scheme']}: {of(row['step_ms'])} a step, not hidden {of(row['not_hidden_ms'])}; " + (
                f"no figures of the device: {row['why_no_device_figures']}" if device is None else
                f"{device['kernels_ms']:.2f} ms of kernels, {device['launches']:g} launches, waits {device['waits']}, allocations {device['allocations']}, "
                f"overlap {device['overlap']}{'; ' if device['unseen'] else ''}{device['unseen']}"))  # fmt: skip
    ddp = found["ddp"]
    lines.append("DDP over NCCL beside ddp_hook: " + (f"skipped: {ddp['skipped']}" if "skipped" in ddp else f"plain over hook {of(ddp['plain_over_hook'], '')}"))
    return lines


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="also writes the figures as JSON here")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--backward-ms", type=float, default=100.0, help="what backward takes by itself (100)")
    parser.add_argument("--models", nargs="+", default=["resnet50", "gpt2"], help="profiles, as `penstock plan` has them")
    parser.add_argument("--profiles", type=Path, default=models.PROFILES, help="the folder that holds them")
    parser.add_argument("--schemes", nargs="+", default=list(SCHEMES), choices=list(SCHEMES))
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.backward_ms <= 0:
        parser.error(f"--rounds is {options.rounds}, expected at least 1; --backward-ms is {options.backward_ms:g}, expected above 0")
    for name in options.models:
        if not (options.profiles / f"{name}.csv").is_file():
            parser.error(f"--models names {name!r}, expected one of {', '.join(models.names(options.profiles))}")
    return options


def main() -> int:
    options = parse()
    reason = why_not(options.device)
    if reason:
        keep({"skipped": reason}, options)
        if is_first_rank():
            print(f"skipped: {reason}")
        return 0
    import penstock.torch as hvd

    hvd.init()
    found = run(options)
    if hvd.rank() == 0:
        print("\n".join(lines(found)))
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
