"""tools/bench PART...: runs parts of the benchmark and prints a table; --json for programs, --output to keep the figures.

overhead     the time that the runtime adds to direct MPI calls, on 1 and 2 ranks of this machine
sets         making a set of 20 000 small gradients, and its first step
plugin-call  a call through a plugin's table against the same function linked statically
planning     one call of a scheduler's plan() for 320 gradients, and of searching schedulers for 10 000
overlap      communication during compute between two hosts with 1 Gb/s (network namespaces: needs root)
wire         the coders of positions and values beside memcpy, one thread; bits a position beside entropy
schemes      the cost of the stages of a step on one rank, for the methods of conf/ that have a goal
states       the state of schemes on a rank, and the part that a step copies so that it can be forgotten; counted, not timed
outer        the outer step of ranks that train apart, in copies of the parameters, without the exchange
transports   ucx against mpi and torch's gloo, on one host and between two (network namespaces: needs root)
named        161 small broadcasts, each by its name, against one broadcast with the whole data, on two ranks from Python
kernels      every hot kernel against memcpy, numpy and torch, one thread; rows in tools/benches/kernels
convergence  schemes against their simulations; alone, with its own options: tools/bench convergence --help
tune         the best learning rate of every scheme; alone, with its own options: tools/bench tune --help
schedulers   schedulers against each other on four hosts; alone, with its own options: tools/bench schedulers --help
routes       hierarchical and shard against flat on four hosts; alone, with its own options: tools/bench routes --help
step         whole steps of all schemes against DDP on shaped links; alone, with its own options: tools/bench step --help
distance     streams and round trips of a step between far hosts; alone, with its own options: tools/bench distance --help
apart        the share of computing of ranks that train apart over a far line; alone, with its own options: tools/bench apart --help
local        the loss of ranks that train apart, against dense gradients; alone, with its own options: tools/bench local --help
ddp          DDP and torch's PowerSGD against ddp_hook on shaped links; alone, with its own options: tools/bench ddp --help
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / "build/release"
PLUGINS = BUILD / "lib/penstock/plugins"
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader", "--mca", "mpi_yield_when_idle", "1"]
PARTS = ("overhead", "sets", "plugin-call", "planning", "overlap", "transports", "named", "kernels", "wire", "schemes", "states", "outer")
ALONE = ("convergence", "tune", "schedulers", "routes", "ddp", "distance", "apart", "local", "step")

sys.path.insert(0, str(REPOSITORY / "tools"))

Rows = list[tuple[str, str, str]]  # what, figure, goal


def run(command: list[str], timeout_s: float = 600.0) -> dict[str, Any]:
    """Runs a program that prints one JSON line. SystemExit with the program's output if it fails."""
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode != 0:
        raise SystemExit(f"bench: {' '.join(command)} ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def spread(values: list[float], unit: str = "") -> str:
    median, least, most = values
    return f"{median:.3g}{unit} ({least:.3g} to {most:.3g})"


def overhead(rounds: int) -> tuple[dict[str, Any], Rows]:
    build("bench_overhead")
    figures: dict[str, Any] = {}
    rows: Rows = []
    for ranks in (1, 2):
        result = run([*MPIRUN, "-np", str(ranks), str(BUILD / "benches/bench_overhead"), str(rounds)])
        figures[f"{ranks}_ranks"] = result
        for name, what in (("single_elements", "161 gradients of one element"), ("resnet50", "161 gradients of ResNet-50")):
            part = result[name]
            rows.append((f"{what}, P = {ranks}: step, ours / direct", f"{spread(part['ours_ms'], ' ms')} / {spread(part['direct_ms'], ' ms')}", ""))
            rows.append((f"{what}, P = {ranks}: extra per gradient", spread(part["extra_us_per_gradient"], " us"), "<= 5 us"))
            rows.append((f"{what}, P = {ranks}: allocations per step", f"{part['allocations_per_step']:.2f}", "0"))
    return figures, rows


def sets(rounds: int) -> tuple[dict[str, Any], Rows]:
    del rounds  # seconds each: once is enough
    build("bench_sets", "penstock-compressor-topk", "penstock-memory-residual", "penstock-collective-loopback", "penstock-scheduler-fusion")
    result = run([str(BUILD / "benches/bench_sets"), "20000"])
    rows = [(f"a set of {result['gradients']} gradients with {scheduler}: made; first step", f"{times['make_s']:.2f} s; {times['first_step_s']:.2f} s", goal)
            for scheduler, goal in (("fusion", "made in <= 3 s"), ("wfbp", "made in <= 10 s")) for times in (result[scheduler],)]
    return result, rows


def plugin_call(rounds: int) -> tuple[dict[str, Any], Rows]:
    build("bench_plugin_call")
    result = run([str(BUILD / "benches/bench_plugin_call"), str(PLUGINS), str(rounds)])
    return result, [("call through a .so, extra over a static call", spread(result["extra_ns"], " ns"), "<= 200 ns")]


def plan_times(rounds: int) -> tuple[dict[str, Any], Rows]:
    planning = importlib.import_module("benches.planning")
    build("plan_probe", *(f"penstock-scheduler-{name}" for name in planning.SCHEDULERS))
    probe = BUILD / "tests/plan_probe"
    result = planning.measure(probe, rounds)
    rows = [(f"plan of {planning.GRADIENTS} gradients, {name}", spread(times, " ms"), "<= 5 ms") for name, times in result.items()]
    result["of_many"] = planning.measure(probe, rounds, planning.MOST_GRADIENTS, planning.SEARCHING)
    for name, times in result["of_many"].items():
        rows.append((f"plan of {planning.MOST_GRADIENTS} gradients, {name}", spread(times, " ms"), "<= 1 s"))
    return result, rows


def overlap(rounds: int) -> tuple[dict[str, Any], Rows]:
    from hosts import Hosts

    build("bench_overlap")
    with Hosts(2, "1gbit") as hosts:
        out = hosts.mpirun([BUILD / "benches/bench_overlap", str(rounds)])
    result = json.loads([line for line in out.splitlines() if line.startswith("{")][-1])
    return result, [
        ("16 MB exchange alone, ours / MPI_Iallreduce", f"{spread(result['ours_alone_ms'], ' ms')} / {spread(result['mpi_alone_ms'], ' ms')}", ""),
        ("equal compute and exchange, ours over the longer", spread(result["ours_over_longer"]), "<= 1.15"),
        ("the same with MPI_Iallreduce, over the longer", spread(result["mpi_over_longer"]), ""),
        ("the same with MPI_Iallreduce, over the sum", spread(result["mpi_over_sum"]), "about 1"),
    ]


def transports(rounds: int) -> tuple[dict[str, Any], Rows]:
    from benches import transports as part

    build("bench_transports", "penstock-collective-ucx")
    figures = part.measure(BUILD / "benches/bench_transports", PLUGINS, MPIRUN, rounds)
    return figures, part.table(figures, spread)


def named(rounds: int) -> tuple[dict[str, Any], Rows]:
    build("penstock")
    os.environ["PYTHONPATH"] = str(REPOSITORY / "frontends/python")
    times = run([*MPIRUN, "-np", "2", sys.executable, str(Path(__file__).with_name("named_ranks.py")), str(5 * rounds)])

    def three(values: list[float]) -> list[float]:
        return [statistics.median(values), min(values), max(values)]

    fused = times["one fused"]
    rows = [("161 broadcasts as one", spread(three(fused), " us"), "")]
    for name in times:
        if name != "one fused":
            over = [a / b for a, b in zip(times[name], fused)]
            rows.append((f"{name}; over one", f"{spread(three(times[name]), ' us')}; {spread(three(over))}", "<= 5"))
    return times, rows


def kernels(rounds: int) -> tuple[dict[str, Any], Rows]:
    build("bench_kernels")
    os.environ["PYTHONPATH"] = str(REPOSITORY / "tools")
    result = run([sys.executable, "-m", "benches.kernels", str(BUILD / "benches/bench_kernels.so"), "--rounds", str(rounds)], timeout_s=1800.0)
    rows: Rows = []
    for row in result["rows"]:
        for ratio in row["ratios"]:
            verdict = f"{ratio['goal']}{'' if ratio['met'] else ' (missed)'}"
            rows.append((f"{row['what']}: {ratio['ratio']}", spread(ratio["value"], " x"), verdict))
    return result, rows


def wire(rounds: int) -> tuple[dict[str, Any], Rows]:
    from benches import wire as part

    build("bench_wire")
    figures = run([str(BUILD / "benches/bench_wire"), str(rounds)])
    return figures, part.table(figures, spread)


def schemes(rounds: int) -> tuple[dict[str, Any], Rows]:
    from benches import schemes as part

    build("bench_schemes", *part.plugins())
    figures = part.measure([*MPIRUN, "-np", "1", str(BUILD / "benches/bench_schemes")], rounds, run)
    return figures, part.table(figures, spread)


def states(rounds: int) -> tuple[dict[str, Any], Rows]:
    from benches import states as part

    del rounds  # nothing is timed
    figures = part.measure()
    return figures, part.table(figures)


def outer(rounds: int) -> tuple[dict[str, Any], Rows]:
    from benches import outer as part

    figures = part.measure(rounds)
    return figures, part.table(figures, spread)


def kernels_markdown(result: dict[str, Any]) -> str:
    """A line per kernel: its time against its goal and against its floor, and the times of others against its time."""
    lines = ["| kernel | goal | reached | over its floor | others over ours |", "|---|---|---|---|---|"]
    for row in result["rows"]:
        goals, reached, floor, others = [], [], "-", []
        for ratio in row["ratios"]:
            of, over = ratio["ratio"].split(" / ")
            figure = spread(ratio["value"])
            if over == "floor":
                floor = f"{figure}, {ratio['goal'].removeprefix('floor: ')}"
            elif of == "ours":
                goals.append(f"{ratio['goal']} {over}" if ratio["goal"] else f"({over})")
                reached.append(figure if ratio["met"] else f"**{figure}**")
            else:
                others.append(f"{of} {figure}" + (f" (goal {ratio['goal']})" if ratio["goal"] else ""))
        lines.append(f"| {row['what']} | {', '.join(goals)} | {', '.join(reached)} | {floor} | {', '.join(others) or '-'} |")
    return "\n".join(lines)


def build(*targets: str) -> None:
    done = subprocess.run(["ninja", "-C", str(BUILD), *targets, "penstock-compressor-none", "penstock-memory-none",
                           "penstock-collective-mpi", "penstock-scheduler-wfbp"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"bench: {targets[0]} does not build:\n{done.stdout[-2000:]}")


def print_table(rows: Rows) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    for what, figure, goal in rows:
        print(f"{what:<{widths[0]}}  {figure:<{widths[1]}}  {goal}".rstrip())


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} or all, the default")
    parser.add_argument("--rounds", type=int, default=9, help="rounds that count, after one that warms up")
    parser.add_argument("--json", action="store_true", help="figures as JSON instead of a table")
    parser.add_argument("--markdown", action="store_true", help="the table of kernels as docs/performance.md has it")
    parser.add_argument("--output", type=Path, help="also write the JSON here")
    options = parser.parse_args(arguments)
    for part in options.parts:
        if part in ALONE:
            parser.error(f"{part} has options of its own: it goes first and alone; see tools/bench {part} --help")
        if part not in (*PARTS, "all"):
            parser.error(f"there is no part {part!r}, expected one of {', '.join((*PARTS, 'all', *ALONE))}")
    return options


def main() -> None:
    if sys.argv[1:2] and sys.argv[1] in ALONE:
        part = importlib.import_module(f"benches.{sys.argv[1]}")
        raise SystemExit(part.main(sys.argv[2:]))
    arguments = parse(sys.argv[1:])
    os.environ["PENSTOCK_PLUGIN_DIRECTORY"] = str(PLUGINS)
    parts = PARTS if not arguments.parts or "all" in arguments.parts else arguments.parts
    functions = {"overhead": overhead, "sets": sets, "plugin-call": plugin_call, "planning": plan_times, "overlap": overlap, "transports": transports, "named": named, "kernels": kernels, "wire": wire, "schemes": schemes, "states": states, "outer": outer}
    figures: dict[str, Any] = {}
    for part in parts:
        print(f"[bench] {part} ...", file=sys.stderr)
        figures[part], rows = functions[part](arguments.rounds)
        if arguments.markdown and part == "kernels":
            print(kernels_markdown(figures[part]))
        elif not arguments.json:
            print_table(rows)
    if arguments.json:
        print(json.dumps(figures, indent=2))
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
