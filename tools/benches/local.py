"""tools/bench local: what it costs in loss that ranks train apart, on the character model of the main job.

Contestants: s-sgd (dense gradients in every step) and the exchanges of docs/guide/far-apart.md, with the arguments that this page has
for H = 30. All start from equal weights and see equal data, so after equal steps they have read equally many
characters. The inner optimizer is AdamW; its rate rises for 3 % of the steps, then falls along a cosine to a tenth. Losses are those
of the held-out text: along the way of the anchors, at the end after synchronize(). Only losses count: nothing is timed.

The state of all ranks is saved every --save-every steps in --folder, and a later call with the same settings goes on from there, also
after a kill. A training that has ended is not repeated; remove its folder to repeat it. With several --rates each contestant is trained
with each of them, and the table shows the best.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import fcntl
import json
import math
import shlex
import signal
import statistics
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from quickstart_job import launch

from benches import convergence
from benches.local_contestants import DENSE, DILOCO, NAMES, Job, contestant, state_of

REPOSITORY = Path(__file__).resolve().parents[2]
OVER_DENSE = (1.02, 1.005)  # the most, and the goal
OVER_DILOCO = 1.005
LONG = 3000  # steps from which these hold
MEANING = """\
Bits per target of samples that no batch contains. *Step N* and *anchors*: the anchors after so many
steps; *at the end*: the model after `synchronize()`, which ends open rounds. *Over dense* and
*over diloco* are ratios of the losses at the end; a ratio is bold above {most:g} (the goal is {goal:g}) and
above {drift:g}. Bytes are the payload of one rank in a step. All contestants have equal data and an
AdamW whose rate rises for 3 % of the steps, then falls along a cosine to a tenth; *AdamW* is the
highest rate. {searched}"""


@dataclass(frozen=True)
class Row:
    """A contestant at its best rate, over all seeds."""

    name: str
    rate: float
    exchange: str
    bits: float  # after synchronize(), mean over seeds
    seed_bits: list[float]
    anchors_bits: float  # before it
    payload_bytes_per_step: float  # of one rank
    curve: list[tuple[int, float]]  # steps, bits of the anchors
    tried: dict[float, float]  # bits by rate
    replicas_equal: bool


def jobs_of(options: argparse.Namespace) -> list[Job]:
    """All trainings, those of the first seed first."""
    return [
        Job(name, rate or contestant(name).rate, options.steps, options.ranks, seed, options.every, options.task)
        for seed in options.seeds
        for rate in options.rates or (None,)
        for name in options.names
    ]


# ---- running ----


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keeps other calls out of the folder. SystemExit if one is there."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SystemExit(f"bench local: another call trains in {folder}; wait for its end, or give another --folder") from None
        yield


def train(job: Job, options: argparse.Namespace, running: list[subprocess.Popen[bytes]]) -> None:
    """Goes on with a training up to --until. Errors: launch.LaunchError; what the ranks say is on stderr."""
    folder = job.folder(options.folder)
    folder.mkdir(exist_ok=True)
    style = "bar" if sys.stderr.isatty() and options.workers == 1 else "lines"
    wanted = {"job": asdict(job), "save_every": options.save_every, "until": options.until, "progress": style}
    file = folder / "job.json"
    file.write_text(json.dumps(wanted, indent=1) + "\n")
    command = launch.command(options.ranks, ["-m", "benches.local_ranks", str(file)])
    with subprocess.Popen(command, env=launch.environment(), stdout=sys.stderr) as process:
        running.append(process)
        status = process.wait()
    if status != 0:
        raise launch.LaunchError(f"the ranks of {job.name} ended with status {status}; call again to go on from the last save in {folder}")


def train_all(jobs: Sequence[Job], options: argparse.Namespace) -> None:
    """Goes on with the trainings, --workers at a time. SystemExit if one fails; the others end before."""
    running: list[subprocess.Popen[bytes]] = []
    with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
        waiting = [pool.submit(train, job, options, running) for job in jobs]
        try:
            failed = [error for one in waiting if (error := one.exception()) is not None]
        except BaseException:  # a signal: what is saved stays
            for one in waiting:
                one.cancel()
            for process in running:
                process.terminate()
            raise
    if failed:
        raise SystemExit(f"bench local: {failed[0]}")


# ---- figures ----


def rows_of(jobs: Sequence[Job], root: Path) -> list[Row]:
    """A row for each contestant whose trainings have all ended."""
    rows = []
    for name in dict.fromkeys(job.name for job in jobs):
        own = [(job, state_of(job.folder(root))) for job in jobs if job.name == name]
        if any("final" not in state for _, state in own):
            continue
        tried = {
            rate: statistics.mean(state["final"]["bits"] for job, state in own if job.rate == rate)
            for rate in sorted({job.rate for job, _ in own})
        }
        best = min(tried, key=lambda rate: tried[rate])
        states = [state for job, state in own if job.rate == best]
        first = next(job for job, _ in own)
        curves = [state["curve"] for state in states]
        rows.append(
            Row(
                name=name,
                rate=best,
                exchange=contestant(name).words(first.every),
                bits=tried[best],
                seed_bits=[state["final"]["bits"] for state in states],
                anchors_bits=statistics.mean(curve[-1]["bits"] for curve in curves),
                payload_bytes_per_step=statistics.mean(state["payload_bytes"] / state["step"] for state in states),
                curve=[(points[0]["step"], statistics.mean(one["bits"] for one in points)) for points in zip(*curves)],
                tried=tried,
                replicas_equal=all(state["final"]["replicas_equal"] for state in states),
            )
        )
    return rows


def _over(row: Row, rows: Sequence[Row], name: str, most: float, long: bool) -> str:
    """The loss over that of another contestant; bold where it is above the most that it may be."""
    other = next((one for one in rows if one.name == name), None)
    if other is None or name == row.name or (name == DILOCO and row.name == DENSE):
        return "-"
    ratio = row.bits / other.bits
    return f"**{ratio:.4f}**" if long and ratio > most else f"{ratio:.4f}"


def shown_steps(rows: Sequence[Row], steps: int) -> list[int]:
    """Up to three steps of the curves, at about a sixth, a third and two thirds of the way."""
    known = sorted(set.intersection(*({step for step, _ in row.curve} for row in rows)) - {steps})
    return sorted({min(known, key=lambda step: abs(step - share * steps)) for share in (1 / 6, 1 / 3, 2 / 3)}) if known else []


def markdown(rows: Sequence[Row], options: argparse.Namespace, command: str) -> str:
    """The rows as a section of docs/convergence.md."""
    long = options.steps >= LONG
    points = shown_steps(rows, options.steps)
    head = ["contestant", "exchange", "AdamW", *(f"step {step}" for step in points), "anchors", "at the end", "seeds", "over dense",
            "over diloco", "bytes"]  # fmt: skip
    seeds = ", ".join(map(str, options.seeds))
    lines = [
        f"Task {options.task}, {options.steps} steps, {options.ranks} ranks, seed{'s' * (len(options.seeds) > 1)} {seeds},"
        f" {datetime.date.today():%d %B %Y}:",
        f"`{command}`.",
        "",
        f"| {' | '.join(head)} |",
        "|" + "---|" * len(head),
    ]
    for row in rows:
        curve = dict(row.curve)
        seed_bits = " ".join(f"{bits:.4f}" for bits in row.seed_bits) if len(row.seed_bits) > 1 else "one seed"
        cells = [row.name, row.exchange, f"{row.rate:g}", *(f"{curve[step]:.4f}" for step in points), f"{row.anchors_bits:.4f}",
                 f"{row.bits:.4f}", seed_bits, _over(row, rows, DENSE, OVER_DENSE[0], long),
                 _over(row, rows, DILOCO, OVER_DILOCO, long), f"{row.payload_bytes_per_step:,.0f}"]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    tried = [f"{row.name} " + ", ".join(f"{bits:.4f} at {rate:g}" for rate, bits in row.tried.items()) for row in rows]
    searched = f"It is the best of these: {'; '.join(tried)}." if options.rates else "It was not searched."
    meaning = MEANING.format(most=OVER_DENSE[0], goal=OVER_DENSE[1], drift=OVER_DILOCO, searched=searched)
    return "\n".join([*lines, "", textwrap.fill(meaning, 100, break_long_words=False, break_on_hyphens=False)]) + "\n"


# ---- the command ----


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench local", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=("text", "digits"), default="text")
    parser.add_argument("--steps", type=int, default=LONG, help="of AdamW, on every rank (default %(default)s)")
    parser.add_argument("--ranks", type=int, default=2, help="on this host (default %(default)s)")
    parser.add_argument("--every", type=int, default=30, metavar="H", help="steps of a round (default %(default)s)")
    parser.add_argument("--schemes", default=",".join(NAMES), help="comma-separated (default %(default)s)")
    parser.add_argument("--rates", help="comma-separated rates of AdamW, in place of each contestant's own")
    parser.add_argument("--seeds", "--seed", default="1", help="comma-separated (default %(default)s)")
    parser.add_argument("--save-every", type=int, default=150, metavar="STEPS", help="also the points of a curve (default %(default)s)")
    parser.add_argument("--until", type=int, metavar="STEP", help="stop every training there, saved; a later call goes on")
    parser.add_argument("--workers", type=int, default=1, help="trainings at a time (default %(default)s)")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / "build/local", help="of the saved states (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="rows as JSON instead of a table")
    parser.add_argument("--output", type=Path, metavar="FILE", help="also write the rows there as JSON")
    parser.add_argument("--write", metavar="TITLE", help="put the table into docs/convergence.md, as the section of that title")
    options = parser.parse_args(arguments)
    options.until = options.steps if options.until is None else options.until
    for name in ("steps", "ranks", "every", "save_every", "until", "workers"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(options, name)}, expected at least 1")
    options.seeds = _numbers(parser, "seeds", options.seeds, int)
    options.rates = _numbers(parser, "rates", options.rates, float) if options.rates is not None else None
    options.names = list(dict.fromkeys(name for name in options.schemes.split(",") if name))
    options.folder = options.folder.resolve()
    try:
        chosen = [contestant(name) for name in options.names]
    except ValueError as error:
        parser.error(str(error))
    if not chosen:
        parser.error(f"--schemes is empty, expected some of {', '.join(NAMES)}")
    for one in chosen:
        least = one.fragments * (one.delay + 1)
        if options.every < least:
            parser.error(f"--every is {options.every}, expected at least {least}: an exchange of {one.name} must land before the next")
    return options


def _numbers(parser: argparse.ArgumentParser, name: str, text: str, kind: Any) -> tuple[Any, ...]:
    try:
        numbers = tuple(dict.fromkeys(kind(number) for number in text.split(",")))
    except ValueError:
        numbers = ()
    if not numbers or not all(number < math.inf and (number > 0 or (kind is int and number == 0)) for number in numbers):
        what = "numbers above 0" if kind is float else "whole numbers from 0"
        parser.error(f"--{name} is {text!r}, expected {what}, comma-separated")
    return numbers


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    jobs = jobs_of(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the ranks are ended too
    with alone_in(options.folder):
        train_all([job for job in jobs if "final" not in state_of(job.folder(options.folder))], options)
    rows = rows_of(jobs, options.folder)
    if missing := [name for name in options.names if name not in {row.name for row in rows}]:
        print(f"bench local: not at their end: {', '.join(missing)}; call again with a higher --until", file=sys.stderr)
        return 0
    text = json.dumps([asdict(row) for row in rows], indent=1)
    table = markdown(rows, options, shlex.join(["tools/bench", "local", *arguments]))
    print(text if options.json else table)
    if options.output is not None:
        options.output.write_text(text + "\n")
    if options.write:
        convergence.put(options.write, table)
    apart = [row.name for row in rows if not row.replicas_equal]
    if apart:
        print(f"bench local: the ranks ended with different weights under {', '.join(apart)}", file=sys.stderr)
    return 1 if apart else 0
