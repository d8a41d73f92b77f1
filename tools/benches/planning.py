"""Part `planning` of tools/bench: what one call of plan() takes for models of many gradients with measured times."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
from pathlib import Path
from typing import Any

GRADIENTS = 320
MOST_GRADIENTS = 10000  # for schedulers that search
MEASURED = 4  # PENSTOCK_MODEL_MEASURED
GATHER = 2  # PENSTOCK_COMBINE_GATHER
SCHEDULERS = ("wfbp", "fusion", "syncea", "mgwfbp", "omgs", "fgbuff", "rgmerge", "partial", "optimal", "horovod", "hipress", "auto", "espresso")
SEARCHING = ("rgmerge", "optimal", "hipress", "auto", "espresso")


def model(source: random.Random, count: int = GRADIENTS) -> dict[str, Any]:
    """Top-k 1 % of gradients as a large transformer has them, ready at random moments, on a link of 1 Gb/s."""

    def candidate(name: str, size: int) -> dict[str, Any]:
        dense = name == "none"
        return {
            "compressor": name, "phase_bytes": [4 * size if dense else max(8, size // 100 * 8)], "combine": 1 if dense else GATHER,
            "encode_fixed_us": 20.0, "encode_per_element_us": 0.0001 if dense else 0.001,
            "decode_fixed_us": 5.0, "decode_per_element_us": 0.0001, "part_alignment": 1, "n_rounds": 1,
        }  # fmt: skip

    gradients, ready = [], 0.0
    for number in range(count):
        size = source.choice((1024, 4096, 1 << 20, 1 << 22))
        ready += source.random() * 1000
        gradients.append({
            "name": f"layer{number}", "shape": [size], "bytes": 4 * size, "ready_us": ready, "forward_us": -1.0, "dtype": 1,
            "given_bucket": 0xFFFFFFFF, "candidates": [candidate("topk", size), candidate("none", size)],
        })  # fmt: skip
    return {
        "gradients": gradients, "order": list(range(count)), "links": [{"alpha_us": 60.0, "beta_us_per_byte": 0.012, "level": 1}],
        "backward_us": ready, "forward_us": 0.0, "world": 4, "hosts": 4, "ranks_per_host": 1, "period": 1, "route": 0, "flags": MEASURED,
    }  # fmt: skip


def planned_ms(probe: subprocess.Popen[str], name: str, given: dict[str, Any]) -> float:
    """Milliseconds that a scheduler needs for a model; its plan must hold each gradient once."""
    assert probe.stdin is not None and probe.stdout is not None
    probe.stdin.write(json.dumps({"scheduler": name, "options": {}, "model": given}) + "\n")
    probe.stdin.flush()
    answer = json.loads(probe.stdout.readline())
    if "error" in answer:
        raise SystemExit(f"bench: scheduler {name} made no plan: {answer['error']}")
    planned = [piece[0] for bucket in answer["buckets"] for piece in bucket["pieces"] if piece[1] == 0]  # first parts
    if sorted(planned) != given["order"]:
        raise SystemExit(f"bench: the plan of scheduler {name} does not hold each gradient once")
    return answer["planned_us"] / 1000


def measure(program: Path, rounds: int, count: int = GRADIENTS, schedulers: tuple[str, ...] = SCHEDULERS) -> dict[str, Any]:
    """Median, least and most milliseconds for each scheduler; each round has a model of its own for all of them."""
    took: dict[str, list[float]] = {name: [] for name in schedulers}
    source = random.Random(1)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as probe:
        assert probe.stdin is not None
        for _ in range(rounds + 1):  # the first is not counted
            given = model(source, count)
            for name in schedulers:
                took[name].append(planned_ms(probe, name, given))
        probe.stdin.close()
    return {name: [statistics.median(times[1:]), min(times[1:]), max(times[1:])] for name, times in took.items()}
