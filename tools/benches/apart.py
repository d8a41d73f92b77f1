"""tools/bench apart: the share of the time for which ranks compute that train apart (LocalSteps) over a far line, on four hosts of
tools/hosts with a router of its own (needs root and /dev/net/tun).

A step sleeps for --step-ms and then steps SGD on parameters of the model's shapes. Each contestant trains a round that does not
count, and then --rounds rounds. Blocking contestants wait for their exchange. The others let it travel under as many steps as the
report of the blocking one tells (delay_that_hides). "computing" is the time of the round's steps without an exchange over the time
of the round. "wait" is the time for which the rank that waits longest waits for results in a round; what computing loses beside it
goes into drift, encoding and outer step. Payload is what a rank hands over in a round, over the bytes of all parameters in float32.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hosts import Hosts, HostsError, link_words
from hosts.links import link_of

from benches.schedulers import print_table
from benches.step import models
from benches.step.race import run_ranks

RANKS = Path(__file__).with_name("apart_ranks.py")
HOSTS = 4
GOAL, GOAL_WAIT = 0.945, 0.02  # computing and waiting, of all time
WAYS = (
    {"name": "sparseloco, blocking", "scheme": "sparseloco", "outer": "none", "fragments": 1, "delay": 0},
    {"name": "sparseloco", "scheme": "sparseloco", "outer": "none", "fragments": 1, "delay": "exchange"},
    {"name": "streaming-diloco, blocking", "scheme": "streaming-diloco", "outer": "nesterov", "fragments": 3, "delay": 0},
    {"name": "streaming-diloco", "scheme": "streaming-diloco", "outer": "nesterov", "fragments": 3, "delay": "exchange"},
    {"name": "diloco, blocking", "scheme": "diloco", "outer": "nesterov", "fragments": 1, "delay": 0},
)


def launch(hosts: Hosts, options: argparse.Namespace, plugins: Path) -> dict[str, Any]:
    """The figures of all contestants. SystemExit if ranks fail."""
    command = [
        sys.executable, RANKS, "--model", options.model, "--step-ms", str(options.step_ms), "--every", str(options.every),
        "--rounds", str(options.rounds), "--ways", json.dumps([way for way in WAYS if way["scheme"] in options.names]),
    ]  # fmt: skip
    return run_ranks(hosts, command, plugins, options.timeout_s, "apart")


def computing(figures: Mapping[str, Any], every: int) -> list[float]:
    """By round: the share of its time that its steps would take without an exchange."""
    return [min(1.0, every * figures["alone_s"] / taken) for taken in figures["round_s"]]


def waits_in(figures: Mapping[str, Any]) -> list[float]:
    """By round: the share of its time for which a rank waits for results."""
    return [wait / taken for wait, taken in zip(figures["wait_s"], figures["round_s"], strict=True)]


def besides(figures: Mapping[str, Any], every: int) -> list[float]:
    """By round: the seconds in which a rank neither waits nor takes the steps as it would without an exchange."""
    return [max(0.0, taken - wait - every * figures["alone_s"]) for wait, taken in zip(figures["wait_s"], figures["round_s"], strict=True)]


def rows(figures: Mapping[str, Any], every: int) -> list[tuple[str, ...]]:
    """The table of all contestants."""
    dense = 4 * figures["elements"]
    table = [("contestant", "delay, steps", "round, s", "computing", "wait, s", "beside, s", "payload, MB", "of dense", "processor, s")]
    for name, one in figures["ways"].items():
        shares = computing(one, every)
        table.append(
            (
                name,
                str(one["delay"]),
                f"{statistics.median(one['round_s']):.2f}",
                f"{statistics.median(shares):.3f} ({min(shares):.3f} to {max(shares):.3f})",
                f"{statistics.median(one['wait_s']):.2f} ({100 * statistics.median(waits_in(one)):.1f} %)",
                f"{statistics.median(besides(one, every)):.2f}",
                f"{1e-6 * one['payload_bytes']:.2f}",
                f"1 / {dense / one['payload_bytes']:.0f}",
                f"{statistics.median(one['cpu_s']):.2f}",
            )
        )
    return table


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    schemes = list(dict.fromkeys(way["scheme"] for way in WAYS))
    parser = argparse.ArgumentParser(prog="tools/bench apart", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--link", default="wan", help="between the hosts (default %(default)s)")
    parser.add_argument("--model", default="resnet50", choices=models.names(), help="whose shapes the parameters have (default %(default)s)")
    parser.add_argument("--step-ms", type=float, default=150.0, help="computing in a step (default %(default)s)")
    parser.add_argument("--every", type=int, default=30, help="steps of a round (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="that count; diloco makes one (default %(default)s)")
    parser.add_argument("--schemes", default=",".join(schemes), help="of %(default)s")
    parser.add_argument("--timeout-s", type=float, default=1800.0, help="of the whole run (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="figures as JSON instead of a table")
    options = parser.parse_args(arguments)
    options.names = options.schemes.split(",")
    if unknown := [name for name in options.names if name not in schemes]:
        parser.error(f"there is no contestant {unknown[0]!r}, expected of {', '.join(schemes)}")
    try:
        link_of(options.link)
    except ValueError as error:
        parser.error(str(error))
    if options.every < 6 or options.rounds < 1 or options.step_ms < 0:
        parser.error("expected --every from 6, --rounds from 1, and --step-ms from 0")
    return options


def main(arguments: Sequence[str]) -> int:
    from benches.bench import PLUGINS, build

    options = parse(arguments)
    build("penstock_product")
    try:
        with link_of(options.link).hosts(HOSTS) as hosts:
            figures = launch(hosts, options, PLUGINS)
    except HostsError as error:
        raise SystemExit(f"bench apart: {error}") from error
    if options.json:
        print(json.dumps(figures, indent=2))
        return 0
    print(
        f"\n{options.model}, {HOSTS} hosts, {link_words(options.link)}, {options.every} steps of {options.step_ms:g} ms a round; "
        f"goals: computing {GOAL:.1%} of the time, wait {GOAL_WAIT:.0%}"
    )
    print_table(rows(figures, options.every))
    return 0
