"""tools/bench step: a whole step of every contestant over shaped links, against DistributedDataParallel.

One rank runs on each of P hosts (network namespaces: needs root), torch's ways over gloo and ours over ucx, with the gradients
of a shipped profile. All contestants take turns, step by step, in one set of processes; ratios are formed within a round. First
the results are checked: they must be finite, equal on every rank and, if nothing is compressed, the mean. In backward the process
sleeps for --backward-ms; 0 is the hardest case, in which nothing hides the exchange.

A cell is a contestant on one model, link, number of ranks and length of backward. With --resume FILE every measured cell is
added to the file as a line of JSON, and cells in the file are not measured again. DistributedDataParallel takes part in every
measurement, for the ratios. --results measures every cell of docs/results.md that docs/results/*.jsonl does not have, a few hours in
all; it may be stopped at any time and continues later. --page measures nothing: it writes the tables of docs/results.md and of the
README from docs/results/*.jsonl. --simulate asks `penstock plan` about other models, links and numbers of ranks; --page marks these
tables as simulated.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hosts import Hosts, HostsError, link_of
from hosts.hosts import SUBNET

from benches.ddp import environment
from benches.schedulers import print_table
from benches.step import cells, claims, contestants, headlines, models, simulated, table
from benches.transports import free_port

RANKS = Path(__file__).with_name("ranks.py")
REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = REPOSITORY / "docs/results.md"
README, PICTURE = REPOSITORY / "README.md", REPOSITORY / "docs/images/step.png"
RESULTS = cells.RESULTS
SIMULATED = RESULTS / "simulated.json"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench step", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help=f"profiles, with commas between (default resnet50): {', '.join(models.names())}")
    parser.add_argument("--profiles", type=Path, default=models.PROFILES, help="where profiles lie (default: those that are shipped)")
    parser.add_argument("--link", "--bandwidth", dest="bandwidth", help="links: rates as tc writes them, wan (30 Mb/s, 50 ms round trip, 0.1 %% loss), or such of your own, as in 30mbit:50ms:0.1%% (default 1gbit,100mbit)")
    parser.add_argument("--ranks", help="numbers of hosts of one rank each (default 4)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (default %(default)s)")
    parser.add_argument("--schemes", default=",".join(contestants.DEFAULT), help=f"contestants: {', '.join(contestants.TORCH)}, {contestants.HOROVOD_ITSELF} (build it first with tools/benches/step/build_horovod), dense, and the names of conf/*.toml (default %(default)s)")
    parser.add_argument("--backward-ms", type=float, default=0.0, help="length of backward (default 0)")
    parser.add_argument("--together", type=int, default=6, help="contestants beside DistributedDataParallel in one run; each takes memory (default %(default)s)")
    parser.add_argument("--timeout-s", type=float, default=1800.0, help="of each run")
    parser.add_argument("--resume", type=Path, help="file of JSON lines: cells in it are not measured again, new ones are added")
    parser.add_argument("--results", action="store_true", help="measure what is missing of all cells of docs/results.md, or of those of --model, --bandwidth and --ranks, and --page")
    parser.add_argument("--page", action="store_true", help="write the tables of docs/results.md and the README from docs/results/*.jsonl, and measure nothing")
    parser.add_argument("--simulate", action="store_true", help="write docs/results/simulated.json by penstock plan, and measure nothing; with --page before it")
    parser.add_argument("--json", action="store_true", help="figures as JSON instead of tables")
    options = parser.parse_args(arguments)
    wanted_models, links = (words.split(",") if words else None for words in (options.model, options.bandwidth))
    profiles = models.names(options.profiles)
    names = options.schemes.split(",")
    for what, wanted, there in (("model", wanted_models or (), profiles), ("contestant", names, contestants.names())):
        for name in wanted:
            if name not in there:
                parser.error(f"there is no {what} {name!r}, expected one of {', '.join(there)}")
    try:
        for link in links or ():
            link_of(link)
        sizes = [int(size) for size in options.ranks.split(",")] if options.ranks else None
    except ValueError as error:
        parser.error(str(error))
    if min(sizes or [2]) < 2 or min(options.rounds, options.together) < 1 or options.backward_ms < 0:
        parser.error("expected --ranks from 2, --rounds and --together from 1, and --backward-ms from 0")
    if options.results and options.resume:
        parser.error("--results has files of its own, docs/results/MODEL.jsonl; leave --resume out")
    if options.results:
        options.cells = cells.among(cells.of_results(), wanted_models, links, sizes)
    else:
        options.cells = cells.product(wanted_models or ["resnet50"], links or ["1gbit", "100mbit"], sizes or [4], options.backward_ms, names, options.rounds, options.together, options.resume)
    if not options.cells:
        parser.error("docs/results.md has no cell of these --model, --bandwidth and --ranks")
    try:
        asks_horovod = not contestants.HOROVOD.exists() and any(contestants.HOROVOD_ITSELF in missing(cell, known(cell)) for cell in options.cells)
    except ValueError as error:
        parser.error(str(error))
    if asks_horovod:
        parser.error(f"{contestants.HOROVOD} is not there; tools/benches/step/build_horovod builds {contestants.HOROVOD_ITSELF}")
    return options


def run_ranks(hosts: Hosts, command: Sequence[str | Path], plugins: Path, timeout_s: float, what: str) -> dict[str, Any]:
    """Runs the command as one rank on every host. Returns the line of JSON that rank 0 prints last. SystemExit if ranks fail or take
    more than timeout_s; their output is on stderr. `what` names the run in that message: "step: ddp"."""
    port = free_port()
    started = [
        hosts.start(
            command, host, env=environment(host, hosts.count, f"{SUBNET}.10", port, "eth0", plugins),
            stdout=subprocess.PIPE if host == 0 else subprocess.DEVNULL, text=True,
        ) for host in range(hosts.count)
    ]  # fmt: skip
    try:
        out, _ = started[0].communicate(timeout=timeout_s)
        ended = [job.wait(timeout=60) for job in started]
    except subprocess.TimeoutExpired:
        raise SystemExit(f"bench {what} took more than {timeout_s:g} s; give them longer with --timeout-s") from None
    figures = [line for line in out.splitlines() if line.startswith("{")]
    if any(ended) or not figures:
        raise SystemExit(f"bench {what}: ranks ended with {', '.join(map(str, ended))}; what they said is above")
    return json.loads(figures[-1])


def launch(hosts: Hosts, cell: cells.Cell, names: Sequence[str], options: argparse.Namespace, plugins: Path) -> dict[str, Any]:
    """Figures by contestant. SystemExit if ranks fail."""
    command = [
        sys.executable, RANKS, "--profile", options.profiles.resolve() / f"{cell.model}.csv", "--contestants", ",".join(names),
        "--rounds", str(cell.rounds), "--backward-ms", str(cell.backward_ms),
    ]  # fmt: skip
    return run_ranks(hosts, command, plugins, options.timeout_s, f"step: {', '.join(names)}")


def records_of(figures: dict[str, Any], fixed: dict[str, Any]) -> list[dict[str, Any]]:
    """A record for each contestant, with the steps of the reference in its rounds. Times keep the microseconds."""
    reference = figures[contestants.REFERENCE]["step_ms"]

    def rounded(what: str, values: Sequence[float]) -> list[float]:
        return [round(value, 6 if what.endswith("_s") else 3) for value in values]

    return [
        fixed | {"contestant": name, **{what: rounded(what, values) for what, values in one.items()}, "reference_ms": rounded("_ms", reference)}
        for name, one in figures.items()
    ]  # fmt: skip


def runs_of(wanted: Sequence[str], together: int) -> list[list[str]]:
    """The groups of contestants that run together. The reference is in every run."""
    others = [name for name in wanted if name not in (contestants.REFERENCE, *contestants.ALONE)]
    groups = [others[first : first + together] for first in range(0, len(others), together)]
    groups += [[name] for name in contestants.ALONE if name in wanted]
    found = [[contestants.REFERENCE, *group] for group in groups]
    return found or [[contestants.REFERENCE]]


def keys_of(cell: cells.Cell) -> list[tuple[Any, ...]]:
    return [(cell.model, cell.link, cell.ranks, cell.backward_ms, name) for name in cell.contestants]


def known(cell: cells.Cell) -> list[table.Record]:
    return table.read(cell.file) if cell.file else []


def missing(cell: cells.Cell, records: Sequence[table.Record]) -> list[str]:
    """The contestants of the cell that no record holds."""
    return [key[-1] for key in table.left(keys_of(cell), records)]


def measure(options: argparse.Namespace, plugins: Path, command: str) -> list[table.Record]:
    """All cells that were asked for, of their files and new."""
    found: list[table.Record] = []
    for cell in options.cells:
        records = known(cell)
        left = missing(cell, records)
        found += [record for record in records if table.key(record) in keys_of(cell)]
        for names in runs_of(left, cell.together) if left else []:
            link = link_of(cell.link)
            date = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
            print(f"[bench] step: {cell.model}, {cell.ranks} hosts at {link.words}: {', '.join(names)}", file=sys.stderr)
            with link.hosts(cell.ranks) as hosts:
                figures = launch(hosts, cell, names, options, plugins)
                if text := hosts.report_text():
                    print(f"[bench] step: {text}", file=sys.stderr)
            fixed = {"model": cell.model, "bandwidth": cell.link, "ranks": cell.ranks, "backward_ms": cell.backward_ms, "date": date[:10], "run": date, "command": command}
            new = [record for record in records_of(figures, fixed) if record["contestant"] in left]
            left = [name for name in left if name not in names]
            if cell.file:
                table.append(cell.file, new)
            found += new
    return found


def page() -> None:
    records = [record for path in sorted(RESULTS.glob("*.jsonl")) for record in table.read(path)]
    if not records:
        raise SystemExit(f"bench step: {RESULTS} holds no results; measure with --resume {RESULTS.relative_to(REPOSITORY)}/NAME.jsonl first")
    table.write_between(PAGE, (table.BEGIN, table.END), table.markdown(records))
    table.write_between(PAGE, (claims.BEGIN, claims.END), claims.markdown(records))
    table.write_between(README, (headlines.BEGIN, headlines.END), headlines.markdown(records))
    headlines.draw(records, PICTURE)
    if SIMULATED.exists():
        table.write_between(PAGE, (simulated.BEGIN, simulated.END), simulated.markdown(json.loads(SIMULATED.read_text())))


def simulate() -> None:
    from benches.bench import BUILD, build

    build("penstock_command")
    simulated.simulate(SIMULATED, BUILD / "bin/penstock", lambda words: print(f"[bench] step: {words}", file=sys.stderr))


def main(arguments: Sequence[str]) -> int:
    from benches.bench import PLUGINS, build

    options = parse(arguments)
    try:
        if options.simulate:
            simulate()
        if options.page:
            page()
        if options.page or options.simulate:
            return 0
        build("all" if not PLUGINS.exists() else "penstock", "penstock-collective-ucx")
        records = measure(options, PLUGINS, shlex.join(["tools/bench", "step", *arguments]))
        if options.results:
            page()
    except (HostsError, ValueError) as error:
        raise SystemExit(f"bench step: {error}") from error
    if options.json:
        print(json.dumps(records, indent=2))
        return 0
    for group, rows in table.groups(records).items():
        print(f"\n{table.title(group)}")
        print_table([table.HEAD, *(table.row(record, records) for record in rows)])
    return 0
