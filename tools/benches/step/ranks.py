"""One rank of tools/bench step, started under torchrun's variables. Rank 0 prints one line of JSON: for each contestant, by round,
milliseconds on the slowest rank, bytes that a rank sent (the most of any), and seconds of processor time of all ranks together."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import penstock.torch as hvd  # noqa: E402
from benches.step.contestants import DENSE, Step, make  # noqa: E402
from benches.step.models import heavy_tailed, shapes_of  # noqa: E402
from penstock.torch.world import current  # noqa: E402

SETS = 2  # of gradients, which take turns
WARM_UP = 3  # torch's PowerSGD is dense in the first two
FIELDS = ("ms", "sent_bytes", "cpu_s")


def sent_bytes() -> int:
    """By the interface that leads to the other hosts, this rank's own there."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == os.environ["GLOO_SOCKET_IFNAME"]:
            return int(counters.split()[8])
    raise SystemExit(f"bench step: there is no interface {os.environ['GLOO_SOCKET_IFNAME']}")


def checksum(results: Sequence[torch.Tensor]) -> list[int]:
    library = current().library
    return [library.checksum(one.contiguous().data_ptr(), one.numel() * one.element_size()) for one in results]


def check(name: str, results: Sequence[torch.Tensor], mean: Sequence[torch.Tensor]) -> None:
    """SystemExit where results are not finite, not those of the other ranks, or, of who sends all, not the mean."""
    if not all(bool(torch.isfinite(one).all()) for one in results):
        raise SystemExit(f"bench step: {name}: a result is not finite")
    everyone: list[list[int]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, checksum(results))
    if any(one != everyone[0] for one in everyone):
        raise SystemExit(f"bench step: {name}: ranks hold different results")
    if name not in DENSE:
        return
    for number, (one, expected) in enumerate(zip(results, mean)):
        off = float((one - expected).norm() / expected.norm())
        if not off < 1e-5:
            raise SystemExit(f"bench step: {name}: gradient {number} is off the mean by {off:.3g} of its norm")


def timed(step: Step, gradients: Sequence[torch.Tensor]) -> list[float]:
    dist.barrier()
    sent, cpu, start = sent_bytes(), time.process_time(), time.perf_counter()
    step(gradients)
    return [(time.perf_counter() - start) * 1e3, float(sent_bytes() - sent), time.process_time() - cpu]


def race(model: str, names: Sequence[str], rounds: int) -> dict[str, dict[str, list[float]]]:
    rank, size = dist.get_rank(), dist.get_world_size()
    shapes = shapes_of(model)
    sets = [heavy_tailed(shapes, rank, number) for number in range(SETS)]
    mean = heavy_tailed(shapes, 0, 0)
    for other in range(1, size):
        for total, one in zip(mean, heavy_tailed(shapes, other, 0)):
            total += one
    for total in mean:
        total /= size
    contestants = {name: make(name, sets[0]) for name in names}
    for name, (step, end) in contestants.items():
        for number in range(WARM_UP):
            results = step(sets[0])
            if number == 0:
                check(name, results, mean)
            end()
    del mean
    mine: dict[str, list[list[float]]] = {name: [] for name in names}
    for number in range(rounds):
        for name, (step, end) in contestants.items():
            mine[name].append(timed(step, sets[number % SETS]))
            end()
        if rank == 0:
            print(f"[bench] step: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    everyone: list[dict[str, list[list[float]]]] = [{} for _ in range(size)]
    dist.all_gather_object(everyone, mine)
    figures: dict[str, dict[str, list[float]]] = {}
    for name in names:
        by_round = list(zip(*(one[name] for one in everyone)))
        joined = [(max(r[0] for r in ranks), max(r[1] for r in ranks), sum(r[2] for r in ranks)) for ranks in by_round]
        figures[name] = dict(zip(FIELDS, map(list, zip(*joined))))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("rounds", type=int)
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init(config_text='[scheme]\ncompressor = "none"\ncollective = "ucx"\n[runtime]\nlog_level = "error"\n')
    dist.init_process_group("gloo")
    figures = race(options.model, options.names, options.rounds)
    if dist.get_rank() == 0:
        print(json.dumps(figures), flush=True)
    dist.barrier()
    hvd.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
