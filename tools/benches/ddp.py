"""tools/bench ddp: DistributedDataParallel's own exchange and torch's PowerSGD hook against ddp_hook, and the cost of Python.

Links: one rank on each of P hosts (network namespaces: needs root), started under torchrun's variables, exchanges the gradients
of ResNet-50 without the computation. All contestants take turns in one run, step by step. `gloo` is DDP without a hook, and
`dense` is our hook with compressor none. Both low-rank methods have rank 4, error feedback and a warm start. Ours use ucx. A
figure is the length of backward on the slowest rank; ratios are formed within a round. First the results are compared with the
mean. The last row has the gain of compression on this link if nothing of the exchange is hidden.

Calls: a step of 161 gradients of one element on one rank. The cost of the hook is the time by which it is slower than DDP with
an empty hook. The cost of DistributedOptimizer is the time by which it is slower than the optimizer alone. tools/bench overhead
measures the share of the C interface, as "ours".
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hosts import Hosts, link_rate, rate_words
from hosts.hosts import SUBNET

from benches.schedulers import print_table
from benches.transports import free_port, three

RANKS = Path(__file__).with_name("ddp_ranks.py")
PAIRS = (("gloo", "dense", 0.98), ("torch's PowerSGD", "power-sgd", 3.5), ("dense", "power-sgd", None))  # one, other, goal of one / other
CALLS_GOAL_US = 10.0


def environment(rank: int, size: int, address: str, port: int, interface: str, plugins: Path) -> dict[str, str]:
    """The variables that torchrun would set for this rank, and the place of Penstock."""
    repository = RANKS.parents[2]
    return {
        **os.environ, "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": "0", "MASTER_ADDR": address, "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": interface, "OMP_NUM_THREADS": "1", "PENSTOCK_PLUGIN_DIRECTORY": str(plugins),
        "PYTHONPATH": str(repository / "frontends/python"),
    }  # fmt: skip


def links(ranks: int, link: str, options: argparse.Namespace, plugins: Path) -> dict[str, list[float]]:
    """Milliseconds by contestant and round. SystemExit with the output of the ranks if they fail."""
    port = free_port()
    command = [sys.executable, RANKS, "links", "--rounds", str(options.rounds), *(word for name in options.only for word in ("--only", name))]
    with Hosts(ranks, link) as hosts:
        started = [
            hosts.start(
                command, host, env=environment(host, ranks, f"{SUBNET}.10", port, "eth0", plugins),
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            ) for host in range(ranks)
        ]  # fmt: skip
        said = [job.communicate(timeout=options.timeout_s) for job in started]
    if any(job.returncode for job in started):
        raise SystemExit("bench ddp: ranks ended with " + ", ".join(str(job.returncode) for job in started) + "".join("\n" + (out + err)[-1500:] for out, err in said))
    return json.loads(said[0][0].strip().splitlines()[-1])


def calls(options: argparse.Namespace, plugins: Path) -> dict[str, list[float]]:
    """Microseconds per gradient by way and round, on one rank, and microseconds of the C interface."""
    from benches.bench import BUILD, run

    done = subprocess.run(
        [sys.executable, RANKS, "calls", "--rounds", str(options.rounds)], env=environment(0, 1, "127.0.0.1", free_port(), "lo", plugins),
        capture_output=True, text=True, timeout=options.timeout_s,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"bench ddp: the rank ended with {done.returncode}\n{done.stderr[-2000:]}")
    figures: dict[str, list[float]] = json.loads(done.stdout.strip().splitlines()[-1])
    step = run(["mpirun", "--allow-run-as-root", "-np", "1", str(BUILD / "benches/bench_overhead"), str(options.rounds)])["single_elements"]["ours_ms"][0]
    figures["C door"] = [step * 1e3 / 161]
    return figures


def spread(values: Sequence[float], digits: int = 1) -> str:
    median, least, most = three(values)
    return f"{median:.{digits}f} ({least:.{digits}f} to {most:.{digits}f})"


def links_table(figures: Mapping[str, Sequence[float]]) -> list[tuple[str, ...]]:
    """A row for each pair of which both were measured."""
    rows: list[tuple[str, ...]] = [("one, other", "one, ms", "other, ms", "one / other", "goal")]
    for one, other, goal in PAIRS:
        if one in figures and other in figures:
            ratio = [a / b for a, b in zip(figures[one], figures[other])]
            rows.append((f"{one}, {other}", spread(figures[one]), spread(figures[other]), spread(ratio, 2), "" if goal is None else f">= {goal:g}"))
    return rows


def calls_table(figures: Mapping[str, Sequence[float]]) -> list[tuple[str, ...]]:
    door = statistics.median(figures["C door"])
    rows: list[tuple[str, ...]] = [("through", "us per gradient", "without it", "more", "more than the C door", "goal")]
    for ours, without in (("hook", "no hook"), ("optimizer", "plain")):
        more = [a - b for a, b in zip(figures[ours], figures[without])]
        rows.append((ours, spread(figures[ours]), spread(figures[without]), spread(more), f"{statistics.median(more) - door:.1f}", f"<= {CALLS_GOAL_US:g}"))
    return rows


def main(arguments: Sequence[str]) -> int:
    from benches.bench import PLUGINS, build

    parser = argparse.ArgumentParser(prog="tools/bench ddp", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", nargs="*", default=["1gbit"], help="rates, as tc writes them (default 1gbit); none: only the calls")
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4], help="hosts of one rank each (default 2 4)")
    parser.add_argument("--only", action="append", default=[], help="a contestant; may be given again")
    parser.add_argument("--no-calls", action="store_true", help="leave out what Python costs")
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count, after one that warms up")
    parser.add_argument("--timeout-s", type=float, default=1200.0, help="of each run")
    parser.add_argument("--json", action="store_true", help="figures as JSON instead of tables")
    options = parser.parse_args(arguments)
    known = sorted({name for pair in PAIRS for name in pair[:2]})
    for name in options.only:
        if name not in known:
            parser.error(f"there is no contestant {name!r}, expected one of {', '.join(known)}")
    try:
        for link in options.links:
            link_rate(link)
    except ValueError as error:
        parser.error(str(error))
    if min(options.rounds, *options.ranks) <= 0:
        parser.error("--rounds and --ranks are expected above 0")
    build("bench_overhead", "penstock-collective-ucx", "penstock-collective-loopback", "penstock-compressor-powersgd", "penstock-memory-residual", "penstock-scheduler-fusion")
    results: dict[str, Any] = {}
    for link in options.links:
        for ranks in options.ranks:
            print(f"[bench] ddp: {ranks} hosts at {rate_words(link)}", file=sys.stderr)
            results[f"{ranks} x {link}"] = figures = links(ranks, link, options, PLUGINS)
            if not options.json:
                print(f"\n{ranks} hosts of one rank, links of {rate_words(link)}")
                print_table(links_table(figures))
    if not options.no_calls:
        results["calls"] = calls(options, PLUGINS)
        if not options.json:
            print("\n161 gradients of one element, one rank")
            print_table(calls_table(results["calls"]))
    if options.json:
        print(json.dumps(results, indent=2))
    return 0
