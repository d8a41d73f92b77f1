"""tools/bench step: what a step takes with each scheme and with what else a user might take, on hosts with slow links.

P network namespaces of this machine (needs root), one rank each, started under torchrun's variables; the gradients of a real model, with
heavy-tailed values that change from step to step, and no computation: nothing hides the exchange, the hardest case for whoever
compresses. Contestants are names of conf/ (after warm-up: switches are left out; ours go over ucx) and
{theirs}
They take turns, step by step, in the same processes. A step begins when all ranks have their gradients and ends when the slowest has
all results; the update is not in it. Ratios are formed within a round. First all results are compared: equal on all ranks, finite,
and for those that send all the mean. Bytes are counted at the interface of each host.

With --keep FILE a cell (model, link, ranks) that the file has with these contestants and rounds is not measured again; new ones are added to it.
--page writes the table of docs/results.md from docs/results/step.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hosts import Hosts, HostsError, link_rate, rate_words
from hosts.hosts import SUBNET

from benches.schedulers import print_table
from benches.transports import free_port, three

from .contestants import DEFAULT, THEIRS, known, models
from .page import KEPT, PAGE, write

REPOSITORY = Path(__file__).resolve().parents[3]
REFERENCE = "ddp"
Cell = dict[str, Any]


def measure(model: str, link: str, ranks: int, options: argparse.Namespace, plugins: Path) -> dict[str, Any]:
    """Figures by contestant. Errors: SystemExit with what the ranks said."""
    command = [sys.executable, Path(__file__).with_name("ranks.py"), model, str(options.rounds), *options.schemes]
    variables = {
        **os.environ, "WORLD_SIZE": str(ranks), "LOCAL_RANK": "0", "MASTER_ADDR": f"{SUBNET}.10", "MASTER_PORT": str(free_port()),
        "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "PENSTOCK_PLUGIN_DIRECTORY": str(plugins),
        "PYTHONPATH": str(REPOSITORY / "frontends/python"),
    }  # fmt: skip
    with Hosts(ranks, link) as hosts:
        started = [
            hosts.start(command, host, env={**variables, "RANK": str(host)}, stdout=subprocess.PIPE, stderr=None if host == 0 else subprocess.PIPE, text=True)
            for host in range(ranks)
        ]  # fmt: skip
        try:
            said = [job.communicate(timeout=options.timeout_s) for job in started]
        except subprocess.TimeoutExpired:
            raise SystemExit(f"bench step: {model} at {link} took longer than --timeout-s {options.timeout_s:g}") from None
    if any(job.returncode for job in started):
        errors = "".join(f"\n{(error or '')[-1500:]}" for _, error in said)
        raise SystemExit(f"bench step: ranks ended with {', '.join(str(job.returncode) for job in started)}{errors}")
    return json.loads(said[0][0].strip().splitlines()[-1])


def table(figures: Mapping[str, Mapping[str, Sequence[float]]], reference: str) -> list[tuple[str, ...]]:
    """A row per contestant below a heading."""
    rows: list[tuple[str, ...]] = [("contestant", "step, ms", f"{reference} / it", "sent by a rank, MB", "processor, s")]
    base = figures[reference]["ms"]
    for name, one in figures.items():
        step, ratio = three(one["ms"]), three([a / b for a, b in zip(base, one["ms"])])
        rows.append((
            name,
            f"{step[0]:.0f} ({step[1]:.0f} to {step[2]:.0f})",
            f"{ratio[0]:.2f} ({ratio[1]:.2f} to {ratio[2]:.2f})",
            f"{three(one['sent_bytes'])[0] / 1e6:.2f}",
            f"{three(one['cpu_s'])[0]:.2f}",
        ))  # fmt: skip
    return rows


def is_same(cell: Cell, model: str, link: str, ranks: int, options: argparse.Namespace) -> bool:
    place = (cell["model"], cell["link"], cell["ranks"], cell["rounds"])
    return place == (model, link, ranks, options.rounds) and set(cell["figures"]) == set(options.schemes)


def kept_cells(path: Path | None) -> list[Cell]:
    """Errors: SystemExit for a file that is none of ours."""
    if path is None or not path.exists():
        return []
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))
        if not all({"model", "link", "ranks", "rounds", "date", "figures"} <= set(cell) for cell in cells):
            raise ValueError("a cell lacks a field")
    except (ValueError, TypeError) as error:
        raise SystemExit(f"bench step: --keep {path} was not written by tools/bench step: {error}") from None
    return cells


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    theirs = "\n".join(f"  {name:<13} {what}" for name, what in THEIRS.items())
    parser = argparse.ArgumentParser(
        prog="tools/bench step", description=(__doc__ or "").format(theirs=theirs), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["resnet50"], help=f"of {', '.join(models())} (default resnet50)")
    parser.add_argument("--links", nargs="+", default=["1gbit", "100mbit"], help="rates, as tc writes them (default 1gbit 100mbit)")
    parser.add_argument("--ranks", nargs="+", type=int, default=[4], help="hosts of one rank each (default 4)")
    parser.add_argument("--schemes", nargs="+", default=list(DEFAULT), help=f"contestants (default {' '.join(DEFAULT)})")
    parser.add_argument("--rounds", type=int, default=5, help="steps of each contestant that count, after three that warm up")
    parser.add_argument("--timeout-s", type=float, default=1800.0, help="of each cell")
    parser.add_argument("--keep", type=Path, help="file of cells, to go on with")
    parser.add_argument("--page", action="store_true", help=f"measure nothing: write {PAGE.name} from {KEPT.name}")
    parser.add_argument("--json", action="store_true", help="cells as JSON instead of tables")
    options = parser.parse_args(arguments)
    for what, given, there in (("model", options.models, models()), ("contestant", options.schemes, known())):
        for name in given:
            if name not in there:
                parser.error(f"there is no {what} {name!r}, expected one of {', '.join(there)}")
    try:
        for link in options.links:
            link_rate(link)
    except ValueError as error:
        parser.error(str(error))
    if options.rounds <= 0 or options.timeout_s <= 0:
        parser.error("--rounds and --timeout-s are expected above 0")
    if min(options.ranks) < 2:
        parser.error(f"--ranks is {min(options.ranks)}, expected 2 or more: one rank has nobody to send to")
    return options


def main(arguments: Sequence[str]) -> int:
    from benches.bench import PLUGINS, build

    options = parse(arguments)
    if options.page:
        write(kept_cells(KEPT), table)
        return 0
    cells = kept_cells(options.keep)
    build("penstock", "penstock_plugins")
    shown: list[Cell] = []
    for model in options.models:
        for link in options.links:
            for ranks in options.ranks:
                cell = next((one for one in cells if is_same(one, model, link, ranks, options)), None)
                if cell is None:
                    print(f"[bench] step: {model}, {ranks} hosts at {rate_words(link)}", file=sys.stderr)
                    try:
                        figures = measure(model, link, ranks, options, PLUGINS)
                    except HostsError as error:
                        raise SystemExit(f"bench step: {error}") from None
                    today = datetime.date.today().isoformat()
                    cell = {"model": model, "link": link, "ranks": ranks, "rounds": options.rounds, "date": today, "figures": figures}
                    cells.append(cell)
                    if options.keep:
                        options.keep.parent.mkdir(parents=True, exist_ok=True)
                        options.keep.write_text(json.dumps(cells, indent=1) + "\n", encoding="utf-8")
                shown.append(cell)
                if not options.json:
                    print(f"\n{model}, {ranks} hosts of one rank, links of {rate_words(link)} ({cell['date']})")
                    print_table(table(cell["figures"], REFERENCE if REFERENCE in cell["figures"] else options.schemes[0]))
    if options.json:
        print(json.dumps(shown, indent=2))
    return 0
