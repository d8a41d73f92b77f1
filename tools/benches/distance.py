"""tools/bench distance: the cost of a distance between hosts of tools/hosts with a router of its own (needs root and /dev/net/tun).

Streams: the bytes per second of one broadcast between two hosts, over each transport and under each congestion control of TCP.
A window smaller than rate x delay shows here, and also a window that a lost packet halves.
Trips: the number of round trips for which a step of each scheme waits, on four hosts over ucx. It is the slope of the quickest
step over the round trip, between two distances. Gradients are so small that the rate of a line does not count, and nothing is
computed. Messages that wait for each other count one after the other; messages side by side count once. Half a trip is one way.
`one` is a single gradient; `many` are 48 gradients in as many layers, which a scheduler may merge or send alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hosts import FarHosts, HostsError, link_words
from hosts.hosts import SUBNET
from hosts.links import NAMED, link_of

from benches.schedulers import print_table
from benches.step import cells, contestants, race
from benches.transports import free_port

RANKS = Path(__file__).with_name("distance_ranks.py")
REPOSITORY = RANKS.parents[2]
TRANSPORTS, CONTROLS = ("mpi", "ucx", "gloo"), ("cubic", "bbr")
NEAR_MS, FAR_MS = 20, 60  # round trips between which the slope is taken
TRIP_RATE = "100mbit"
PROFILES = {"one": 1, "many": 48}  # gradients
SIDE = 16  # of each
TRIP_HOSTS = 4
TOGETHER = 16  # contestants of a launch
# `auto` chooses by measured times, so its trips are those of its choice. Horovod itself is there only if somebody has built it. Some
# files exchange what another file exchanges.
EVERY = tuple(name for name in contestants.names() if name not in ("auto", contestants.HOROVOD_ITSELF, *cells.SAME))
DEFAULT = ("ddp", "dense", "wfbp", "topk-residual", "dgc", "ef-sign", "sign-sgd-majority", "qsgd", "power-sgd", "acp-sgd", "ok-topk", "dear")


def streams(link: str, size: int, rounds: int) -> dict[str, list[float]]:
    """Megabits a second by transport and control, and round."""
    far = link_of(link)
    found = {}
    for control in CONTROLS:
        for transport in TRANSPORTS:
            with FarHosts(2, far.rate, far.way, control=control) as hosts:
                variables = {
                    "MASTER_ADDR": f"{SUBNET}.10", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "eth0",
                    "PYTHONPATH": str(REPOSITORY / "frontends/python"), "PENSTOCK_PLUGIN_DIRECTORY": os.environ["PENSTOCK_PLUGIN_DIRECTORY"],
                }  # fmt: skip
                passed = [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]
                out = hosts.mpirun([*passed, sys.executable, RANKS, transport, str(size), str(rounds)], timeout_s=600)
                print(f"[bench] distance: {transport} under {control}: {hosts.report_text()}", file=sys.stderr)
            found[f"{transport}, {control}"] = json.loads([line for line in out.splitlines() if line.startswith("[")][-1])
    return found


def slope(near_ms: float, far_ms: float) -> float:
    """Round trips of a step that takes so long over the two distances."""
    return (far_ms - near_ms) / (FAR_MS - NEAR_MS)


def profile(folder: Path, name: str) -> None:
    """A model of small gradients, as tools/bench step reads it."""
    rows = [f"layer{number},{SIDE}x{SIDE},1" for number in range(PROFILES[name])]
    (folder / f"{name}.csv").write_text("\n".join(["name,shape,work", *rows]) + "\n")


def trips(names: Sequence[str], rounds: int, plugins: Path) -> dict[str, dict[str, float]]:
    """Round trips by contestant and profile. Errors: SystemExit, HostsError."""
    found: dict[str, dict[str, float]] = {name: {} for name in names}
    with tempfile.TemporaryDirectory() as folder:
        options = argparse.Namespace(profiles=Path(folder), timeout_s=1800.0)
        for model in PROFILES:
            profile(Path(folder), model)
            for group in (names[first : first + TOGETHER] for first in range(0, len(names), TOGETHER)):
                together = list(dict.fromkeys([contestants.REFERENCE, *group]))
                quickest = []  # of the rounds: the delay of a busy processor is no trip
                for round_trip in (NEAR_MS, FAR_MS):
                    link = f"{TRIP_RATE}:{round_trip}ms"
                    cell = cells.Cell(model, link, TRIP_HOSTS, 0.0, tuple(together), rounds, len(together))
                    with link_of(link).hosts(TRIP_HOSTS) as hosts:
                        figures = race.launch(hosts, cell, together, options, plugins)
                    quickest.append({name: min(one["step_ms"]) for name, one in figures.items()})
                for name in group:
                    found[name][model] = slope(quickest[0][name], quickest[1][name])
                    print(f"[bench] distance: {name}, {model}: {found[name][model]:.1f} round trips", file=sys.stderr)
    return found


def stream_rows(figures: Mapping[str, Sequence[float]]) -> list[tuple[str, ...]]:
    return [("transport, control", "Mb/s", "from", "to")] + [
        (name, f"{statistics.median(rates):.1f}", f"{min(rates):.1f}", f"{max(rates):.1f}") for name, rates in figures.items()
    ]


def trip_rows(figures: Mapping[str, Mapping[str, float]]) -> list[tuple[str, ...]]:
    return [("scheme", *(f"round trips, {model}" for model in PROFILES))] + [
        (name, *(f"{one[model]:.1f}" for model in PROFILES)) for name, one in figures.items()
    ]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench distance", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--link", default="wan", help="of the streams (default %(default)s, which is " + NAMED["wan"].replace("%", "%%") + ")")
    parser.add_argument("--only", choices=("streams", "trips"))
    parser.add_argument("--megabytes", type=float, default=8.0, help="of a broadcast (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="broadcasts, and steps that count (default %(default)s)")
    parser.add_argument(
        "--schemes",
        default=",".join(DEFAULT),
        help="whose trips are counted, of ddp, dense and conf/ (default %(default)s); all: every exchange but that of auto",
    )
    parser.add_argument("--json", action="store_true", help="figures as JSON instead of tables")
    options = parser.parse_args(arguments)
    options.names = list(EVERY) if options.schemes == "all" else options.schemes.split(",")
    if unknown := [name for name in options.names if name not in contestants.names()]:
        parser.error(f"there is no contestant {unknown[0]!r}, expected of {', '.join(contestants.names())}")
    try:
        far = isinstance(link_of(options.link), type(link_of("wan")))
    except ValueError as error:
        parser.error(str(error))
    if not far or options.rounds < 1 or not 0 < options.megabytes <= 100:
        parser.error("expected a --link with a distance, as in 30mbit:50ms, --rounds from 1, and --megabytes above 0, up to 100")
    return options


def main(arguments: Sequence[str]) -> int:
    from benches.bench import PLUGINS, build

    options = parse(arguments)
    build("penstock_product")
    os.environ["PENSTOCK_PLUGIN_DIRECTORY"] = str(PLUGINS)
    figures: dict[str, Any] = {}
    try:
        if options.only != "trips":
            figures["streams"] = streams(options.link, round(1e6 * options.megabytes), options.rounds)
        if options.only != "streams":
            figures["trips"] = trips(options.names, options.rounds, PLUGINS)
    except HostsError as error:
        raise SystemExit(f"bench distance: {error}") from error
    if options.json:
        print(json.dumps(figures, indent=2))
        return 0
    if "streams" in figures:
        print(f"\none stream of {options.megabytes:g} MB, {link_words(options.link)}")
        print_table(stream_rows(figures["streams"]))
    if "trips" in figures:
        print(f"\nround trips of a step, {TRIP_HOSTS} hosts")
        print_table(trip_rows(figures["trips"]))
    return 0
