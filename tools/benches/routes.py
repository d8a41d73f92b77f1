"""tools/bench routes: hierarchical and shard against flat, on network namespaces of this machine (needs root).

Two comparisons with the gradients of ResNet-50, each in one run, step by step in turns: hierarchical on four hosts of two
ranks, dense and with signs; shard on four hosts of one rank, with signs. Backward is short, so that a step is what the
exchange takes. A figure is the median of a round's steps on the slowest rank; ratios are formed within a round, flat over the
route where more is better ("times as fast") and the route over flat where less is. Bytes are counted, per rank and step: what
it sends to others, those of its own host included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from hosts import Hosts, link_rate, rate_words

from benches import resnet50_backward
from benches.schedulers import half_spread, launch, per_round, print_table, ratios, spread

HOSTS = 4
METHODS = {"dense": ("none", "none"), "signs": ("efsign", "residual")}
COMPARISONS = {  # name: route, ranks per host, methods
    "hierarchical": ("hierarchical", 2, ("dense", "signs")),
    "shard": ("shard", 1, ("signs",)),
}


def scheme(method: str, route: str) -> str:
    compressor, memory = METHODS[method]
    return f'[scheme]\ncompressor = "{compressor}"\nmemory = "{memory}"\ncollective = "mpi"\nscheduler = "wfbp"\nroute = "{route}"\n'


def contestants(comparison: str) -> list[dict[str, Any]]:
    """Flat and the route, for each method, as the program is told."""
    route, _, methods = COMPARISONS[comparison]
    return [
        {"name": f"{method} {way}", "scheme": scheme(method, way), "dense": method == "dense"} for method in methods for way in ("flat", route)
    ]


def table(result: dict[str, Any], comparison: str) -> list[tuple[str, ...]]:
    """A row per contestant below a heading."""
    route, _, methods = COMPARISONS[comparison]
    by_name = {one["name"]: one for one in result["contestants"]}
    rows: list[tuple[str, ...]] = [("method and route", "step ms", "MB sent per rank", "step / flat", "times as fast", "+-")]
    for method in methods:
        flat = by_name[f"{method} flat"]
        for way in ("flat", route):
            one = by_name[f"{method} {way}"]
            ratio = ratios(one["step_ms"], flat["step_ms"])
            rows.append((
                one["name"],
                spread(per_round(one["step_ms"]), 0),
                f"{one['moved_bytes_per_step'] / 1e6:.2f}",
                spread(ratio, 3),
                f"{1 / statistics.median(ratio):.2f}",
                f"{half_spread(ratio):.1%}",
            ))  # fmt: skip
    return rows


def run(hosts: Hosts, comparison: str, options: argparse.Namespace) -> dict[str, Any]:
    """One comparison on those hosts."""
    settings: dict[str, Any] = {
        "gradients": resnet50_backward.CSV, "backward-ms": options.backward_ms,
        "rounds": options.rounds, "steps": options.steps, "warm-up": options.warm_up,
    }  # fmt: skip
    return launch(hosts, contestants(comparison), settings, options.timeout_s)


def main(arguments: Sequence[str]) -> int:
    from benches.bench import build

    parser = argparse.ArgumentParser(prog="tools/bench routes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--link", default="100mbit", help="rate of the links, as tc writes it (default %(default)s)")
    parser.add_argument("--only", choices=tuple(COMPARISONS))
    parser.add_argument("--backward-ms", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--warm-up", type=int, default=1)
    parser.add_argument("--timeout-s", type=float, default=1800.0, help="of each comparison")
    parser.add_argument("--json", action="store_true", help="figures as JSON instead of tables")
    options = parser.parse_args(arguments)
    try:
        link_rate(options.link)
    except ValueError as error:
        parser.error(str(error))
    if min(options.rounds, options.steps, options.backward_ms) <= 0 or options.warm_up < 0:
        parser.error("--rounds, --steps and --backward-ms are expected above 0, --warm-up 0 or more")
    build("bench_schedulers", "penstock-compressor-efsign", "penstock-compressor-none", "penstock-memory-none", "penstock-memory-residual", "penstock-scheduler-wfbp")
    results: dict[str, Any] = {}
    for comparison in (options.only,) if options.only else tuple(COMPARISONS):
        ranks_per_host = COMPARISONS[comparison][1]
        print(f"[bench] {comparison}: {HOSTS} hosts of {ranks_per_host} at {rate_words(options.link)}", file=sys.stderr)
        with Hosts(HOSTS, options.link, ranks_per_host) as hosts:
            results[comparison] = run(hosts, comparison, options)
        if not options.json:
            print(f"\n{comparison}, {HOSTS} hosts of {ranks_per_host} ranks, links of {rate_words(options.link)}")
            print_table(table(results[comparison], comparison))
    if options.json:
        print(json.dumps(results, indent=2))
    return 0
