"""One rank of tools/bench step, started under torchrun's variables (RANK, WORLD_SIZE, MASTER_*). Rank 0 prints one line of JSON.

All contestants of a run live in these processes and take turns, step by step. All get equal values: normal times
exp(normal), different on every rank and shifted from step to step. A step lasts from a common start to the last result,
on the slowest rank. Bytes are the bytes that left the interface of the host until all ranks had ended the step
(/proc/net/dev, with headers and acknowledgements). CPU seconds count all threads of the process. Before each step every
rank copies the gradients; the CPU seconds of this copy are the unit for the CPU seconds of a step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import penstock.torch as hvd
import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.step import contestants, models  # noqa: E402
from benches.step.horovod_itself import Horovod  # noqa: E402
from benches.step.ways import Backward, Ddp, GraceStyle, Ours, Way  # noqa: E402

SHIFT = 7919 * 64  # entries by which the values move from step to step


def heavy_tailed(elements: int, rank: int) -> torch.Tensor:
    """Normal times exp(normal), a distribution like that of gradients."""
    generator = torch.Generator().manual_seed(rank + 1)
    values = torch.randn(elements, generator=generator)
    return values.mul_(torch.randn(elements, generator=generator).exp_())


def shifted(source: torch.Tensor, number: int, work: torch.Tensor) -> None:
    """Writes the values of step `number` to `work`: the source, rotated."""
    by = number * SHIFT % len(source)
    work[: len(source) - by] = source[by:]
    work[len(source) - by :] = source[:by]


def sent_bytes(interface: str) -> int:
    """The bytes that have left this host. Each network namespace has its own count."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == interface:
            return int(counts.split()[8])
    raise SystemExit(f"bench step: /proc/self/net/dev has no interface {interface}, over which the ranks meet")


def everyone(mine: Any) -> list[Any]:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    return found


def way_of(name: str, backward: Backward) -> Way:
    if name == contestants.HOROVOD_ITSELF:
        return Horovod(backward)
    if name == "grace-style":
        return GraceStyle(backward)
    return Ddp(name, backward) if name in contestants.TORCH else Ours(name, backward)


class Start:
    """Starts all ranks at one moment, at any distance between them: the hosts are on one machine and share its clock."""

    def __init__(self) -> None:
        took = [self.gather() for _ in range(3)]
        self.longest = max(after - before for before, after in took)
        self.longest = max(everyone(self.longest)) * 1.5 + 1e-3

    @staticmethod
    def gather() -> tuple[float, float]:
        """The time at which the last rank came, and the time at which this rank learned it."""
        came = torch.tensor([time.perf_counter()], dtype=torch.float64)
        all_came = [torch.empty_like(came) for _ in range(dist.get_world_size())]
        dist.all_gather(all_came, came)
        return max(float(one) for one in all_came), time.perf_counter()

    def wait(self) -> None:
        last, _ = self.gather()
        time.sleep(max(0.0, last + self.longest - time.perf_counter()))


class Race:
    """The data that all contestants of this rank share, and the figures of each contestant."""

    def __init__(self, names: list[str], gradients: list[models.Gradient], backward_s: float, interface: str) -> None:
        self.elements = sum(gradient.elements for gradient in gradients)
        self.source, self.work = heavy_tailed(self.elements, dist.get_rank()), torch.empty(self.elements)
        self.backward = Backward(gradients, self.work, backward_s)
        self.interface = interface
        self.start = Start()
        self.ways = {name: way_of(name, self.backward) for name in names}
        self.steps = dict.fromkeys(names, 0)
        self.figures: dict[str, dict[str, list[float]]] = {name: {} for name in names}

    def step(self, name: str) -> dict[str, float]:
        """Runs one step. Its figures are equal on every rank."""
        way = self.ways[name]
        copying = time.process_time()
        shifted(self.source, self.steps[name], self.work)
        copying = time.process_time() - copying
        self.steps[name] += 1
        way.before()
        self.start.wait()
        sent, cpu, start = sent_bytes(self.interface), time.process_time(), time.perf_counter()
        way.step()
        taken, cpu = time.perf_counter() - start, time.process_time() - cpu
        dist.barrier()  # before it other ranks may still send for this step
        all_ranks = everyone((taken, sent_bytes(self.interface) - sent, cpu, copying))
        figures = {"step_ms": 1e3 * max(one[0] for one in all_ranks), "wire_bytes": statistics.mean(one[1] for one in all_ranks),
                   "cpu_s": statistics.mean(one[2] for one in all_ranks), "copy_cpu_s": statistics.mean(one[3] for one in all_ranks)}  # fmt: skip
        if isinstance(way, Ours):
            figures |= way.split()
        way.after()
        return figures

    def check(self, name: str) -> None:
        """SystemExit unless the last step left equal finite bits on every rank and, for uncompressed contestants, the mean."""
        results = self.ways[name].results()
        finite = all(bool(result.isfinite().all()) for result in results)
        hashed = 0
        for result in results:
            hashed = zlib.crc32(result.contiguous().numpy().reshape(-1).data, hashed)
        hashes = everyone(hashed)
        anything = any(bool(result.any()) for result in results)
        if not finite or not anything or len(set(hashes)) != 1:
            raise SystemExit(f"bench step: {name}: results have the hashes {hashes}, finite: {finite}, not all zero: {anything}; expected the same finite bits on every rank")
        if name in (contestants.REFERENCE, contestants.HOROVOD_ITSELF, contestants.DENSE):
            self.check_mean(name, results)

    def check_mean(self, name: str, results: list[torch.Tensor]) -> None:
        """Compares with a mean that is made from every rank's seed, without any exchange."""
        mean, theirs = torch.zeros(self.elements), torch.empty(self.elements)
        for rank in range(dist.get_world_size()):
            shifted(heavy_tailed(self.elements, rank), self.steps[name] - 1, theirs)
            mean += theirs
        mean /= dist.get_world_size()
        first = 0
        for number, result in enumerate(results):
            wanted = mean[first : first + result.numel()].view(result.shape)
            first += result.numel()
            # Sums have different orders: one rounding per rank, at the size of its largest value, some hundreds.
            off = float(((result - wanted).abs() / (1 + wanted.abs())).max())
            if not off <= 1e-4:
                raise SystemExit(f"bench step: {name}: gradient {number} is off the mean of all ranks by {off:.3g}, expected at most 1e-4")

    def note(self, name: str, figures: dict[str, float]) -> None:
        for what, value in figures.items():
            self.figures[name].setdefault(what, []).append(value)


def progress(words: str) -> None:
    if dist.get_rank() == 0:
        print(f"[bench] step: {words}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", type=Path, required=True)
    parser.add_argument("--contestants", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--backward-ms", type=float, required=True)
    parser.add_argument("--interface", default="eth0")
    options = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init(config_text=contestants.DENSE_SCHEME + 'collective = "ucx"\n')
    dist.init_process_group("gloo")
    gradients = models.read(options.profile.stem, options.profile.parent)
    names = options.contestants.split(",")
    race = Race(names, gradients, options.backward_ms * 1e-3, options.interface)
    for name in names:
        taken = [race.step(name)["step_ms"] for _ in range(race.ways[name].warm_up)]
        race.check(name)
        progress(f"{name} is right; its last step to warm up took {taken[-1]:.0f} ms")
        for line in race.ways[name].explanation():
            progress(f"{name}: {line}")
    for number in range(options.rounds):
        for name in names:
            race.note(name, race.step(name))
        progress(f"round {number + 1} of {options.rounds}: " + ", ".join(f"{name} {race.figures[name]['step_ms'][-1]:.0f}" for name in names) + " ms")
    if dist.get_rank() == 0:
        print(json.dumps(race.figures))
    dist.barrier()
    for way in race.ways.values():
        way.end()
    hvd.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
