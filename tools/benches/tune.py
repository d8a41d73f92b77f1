"""Learning rates: every scheme's best of a small grid, searched with the simulations of tests/oracle.

Each run trains four simulated ranks in one process and ends with the validation loss. A run that does not converge
counts as the worst. If the best rate is the lowest or highest tried rate, the next rate beyond it is tried too. The
best rate and all tried rates are written to tools/quickstart_job/tuned.toml; the main job and tools/bench convergence
read this file. The file is written after every run. Runs in the file are not repeated, so a stopped search continues.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import fcntl
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from quickstart_job import toml_text
from quickstart_job.optimizers import FIRST_RATES, TUNED, Optimizer
from quickstart_job.recipes import KNOWN, Recipe, recipe

from . import convergence

WIDEST = 3  # places beyond either end of the first ones
WORST = math.inf
GONE = 3.0  # times the first loss: such a run does not come back

HEAD = """\
# Written by `tools/bench tune`: for every task and scheme the optimizer, its best learning rate, and the validation
# loss in bits at each rate that was tried, in training of `steps` steps on `ranks` simulated ranks. inf: no convergence.

"""


@dataclass
class Search:
    """The rates of one scheme on one task."""

    chosen: Recipe
    setting: convergence.Setting
    seed: int
    first: tuple[float, ...]
    tried: dict[float, float] = field(default_factory=dict)  # bits by rate

    @property
    def name(self) -> str:
        return self.chosen.name

    def missing(self) -> list[float]:
        """Rates to try now: first the grid, from its middle outwards; then one rate beyond the better end."""
        left = [rate for rate in self.first if rate not in self.tried]
        if left:
            return sorted(left, key=lambda rate: abs(math.log(rate / math.sqrt(self.first[0] * self.first[-1]))))
        if self.best == min(self.tried) and beyond(min(self.tried), min(self.first)) < WIDEST:
            return [neighbour(self.best, -1)]
        if self.best == max(self.tried) and beyond(max(self.first), max(self.tried)) < WIDEST:
            return [neighbour(self.best, 1)]
        return []

    @property
    def best(self) -> float:
        """The rate of the lowest loss. The lowest rate, if losses are equal or no run converges."""
        return min(self.tried, key=lambda rate: (self.tried[rate], rate))

    def facts(self) -> dict[str, Any]:
        """Facts that are equal for all runs of one search."""
        optimizer = self.chosen.optimizer(self.setting.task)
        return {
            "optimizer": optimizer.kind,
            "momentum": optimizer.momentum,
            "setting": self.chosen.setting,
            "steps": self.setting.steps,
            "ranks": self.setting.ranks,
            "seed": self.seed,
        }

    def entry(self) -> dict[str, Any]:
        tried = [[rate, round(self.tried[rate], 4)] for rate in sorted(self.tried)]
        return {"rate": self.best, "tried": tried, **self.facts()}


def neighbour(rate: float, places: int) -> float:
    """The rate `places` places after `rate` in the sequence 0.001, 0.003, 0.01, 0.03 ..."""
    place = round(2 * math.log10(rate)) + places
    return float(f"{1 if place % 2 == 0 else 3}e{place // 2}")


def beyond(low: float, high: float) -> int:
    """How many places `high` is from `low`."""
    return round(2 * math.log10(high / low))


def read(file: Path) -> toml_text.Table:
    return toml_text.load(file) if file.exists() else {}


def tried_before(table: toml_text.Table, search: Search) -> dict[float, float]:
    """The results of this search in the file. Results under its name with another setting do not count."""
    entry = table.get(search.setting.task, {}).get(search.name, {})
    if any(entry.get(key) != fact for key, fact in search.facts().items()):
        return {}
    return {float(rate): float(bits) for rate, bits in entry["tried"]}


def record(file: Path, search: Search) -> None:
    """Writes the search to the file and keeps entries that other processes have written meanwhile."""
    convergence.CACHE.mkdir(parents=True, exist_ok=True)
    with (convergence.CACHE / "tune.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        table = read(file)
        table.setdefault(search.setting.task, {})[search.name] = search.entry()
        order = {name: place for place, name in enumerate(KNOWN)}
        table = {
            task: dict(sorted(entries.items(), key=lambda entry: order.get(entry[0], len(order))))
            for task, entries in sorted(table.items(), reverse=True)
        }
        partial = file.with_suffix(".partial")
        partial.write_text(HEAD + toml_text.dump(table).replace("\n[", "\n\n["))
        partial.replace(file)


class Diverged(Exception):
    pass


def run(chosen: Recipe, setting: convergence.Setting, seed: int, rate: float) -> float:
    """Validation loss in bits at a rate, in this process."""
    chosen = at_rate(chosen, setting.task, rate)
    first: list[float] = []

    def stop_if_gone(step: int, loss: float) -> None:
        first.append(loss)
        if not loss <= GONE * first[0]:  # also true for NaN
            raise Diverged

    try:
        result = convergence.simulated(chosen, setting, seed, "none", stop_if_gone)
    except Diverged:
        return WORST
    return result["bits"] if convergence.trains(result) else WORST


def trained_with(chosen: Recipe, kind: str | None) -> Recipe:
    """The scheme with another optimizer: AdamW, without its first beta if the memory has a momentum, or SGD without momentum."""
    if kind is None:
        return chosen
    momentum = 0.9 if kind == "adamw" and not chosen.own_momentum else 0.0
    return replace(chosen, fixed=Optimizer(kind, FIRST_RATES[kind][1], momentum))


def at_rate(chosen: Recipe, task: str, rate: float) -> Recipe:
    return replace(chosen, fixed=replace(chosen.optimizer(task), rate=rate))


def twins(searches: Iterable[Search]) -> dict[str, list[Search]]:
    """Searches grouped by simulation: schemes that differ only in the scheduler share their runs."""
    groups: dict[str, list[Search]] = {}
    for search in searches:
        key = convergence.simulated_key(at_rate(search.chosen, search.setting.task, 1.0), search.setting, search.seed)
        groups.setdefault(key, []).append(search)
    return groups


def end_with_parent() -> None:
    """In a worker: ends the run if a signal has ended its search, because its result is not needed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def tune(searches: Sequence[Search], file: Path, workers: int) -> None:
    """Makes the missing runs, several at a time, and updates the file after each run."""
    from tqdm import tqdm

    groups = twins(searches)
    waiting: dict[concurrent.futures.Future[float], tuple[str, float, float]] = {}
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    with (
        concurrent.futures.ProcessPoolExecutor(workers, context, end_with_parent) as pool,
        tqdm(desc="tune", unit="run", disable=not sys.stderr.isatty()) as bar,
    ):

        def submit(key: str, rates: Sequence[float]) -> None:
            for rate in rates:
                one = groups[key][0]
                future = pool.submit(run, one.chosen, one.setting, one.seed, rate)
                waiting[future] = (key, rate, time.monotonic())

        def settle(key: str) -> list[float]:
            """Copies the results of each search to all searches of the group. Returns the rates that are missing."""
            known = {rate: bits for search in groups[key] for rate, bits in search.tried.items()}
            for search in groups[key]:
                if search.tried != known:
                    search.tried = dict(known)
                    record(file, search)
            return groups[key][0].missing()

        wanted = {key: settle(key) for key in groups}
        for place in range(max(map(len, wanted.values()), default=0)):  # every scheme's middle rate, then the others
            for key, rates in wanted.items():
                submit(key, rates[place : place + 1])
        bar.total, done = len(waiting), 0
        while waiting:
            finished, _ = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in finished:
                key, rate, _ = waiting.pop(future)
                one = groups[key][0]
                one.tried[rate] = future.result()
                record(file, one)
                more = settle(key)
                if not any(key == other for other, _, _ in waiting.values()):
                    submit(key, more)
                done += 1
                bar.total = done + len(waiting)
                bar.update()
                words = at_rate(one.chosen, one.setting.task, rate).optimizer(one.setting.task).words
                names = ", ".join(search.name for search in groups[key])
                tqdm.write(f"{one.setting.task}, {names}, {words}: {one.tried[rate]:.3f} bits ({len(waiting)} runs left)", sys.stderr)


def table(searches: Sequence[Search]) -> str:
    """The best rate and all tried rates of each scheme."""
    lines = []
    for search in searches:
        tried = "  ".join(f"{rate:g}: {search.tried[rate]:.3f}" for rate in sorted(search.tried))
        optimizer = at_rate(search.chosen, search.setting.task, search.best).optimizer(search.setting.task)
        lines.append(f"{search.setting.task:<7} {search.chosen.label:<28} {optimizer.words:<24} {tried}")
    return "\n".join(lines)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/bench tune", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", choices=tuple(convergence.STEPS), default="text")
    parser.add_argument("--schemes", default=",".join(KNOWN), help="comma-separated; default: all")
    parser.add_argument("--optimizer", choices=tuple(FIRST_RATES), help="in place of the scheme's own; with an --output of your own")
    parser.add_argument("--rates", help="comma-separated, at least three, in place of the optimizer's first ones")
    parser.add_argument("--steps", type=int, help=f"of each run; default: {', '.join(f'{v} for {k}' for k, v in convergence.STEPS.items())}")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="runs at a time; default: cores")
    parser.add_argument("--output", type=Path, default=TUNED, help="the file; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="what was found as JSON instead of a table")
    options = parser.parse_args(arguments)
    for name in ("steps", "ranks", "workers"):
        value = getattr(options, name)
        if value is not None and value < 1:
            parser.error(f"--{name} is {value}, expected at least 1")
    if options.optimizer is not None and options.output == TUNED:
        parser.error(f"--optimizer goes with --output FILE: from {TUNED.name} others take each scheme's rate for its own optimizer")
    options.names = list(dict.fromkeys(name for name in options.schemes.split(",") if name))
    for name in options.names:
        if name not in KNOWN:
            parser.error(f"--schemes names {name!r}, expected some of {', '.join(KNOWN)}")
    options.first = rates_of(parser, options.rates) if options.rates is not None else None
    return options


def rates_of(parser: argparse.ArgumentParser, text: str) -> tuple[float, ...]:
    try:
        rates = tuple(sorted({float(rate) for rate in text.split(",")}))
    except ValueError as error:
        parser.error(f"--rates is {text!r}, expected numbers: {error}")
    if len(rates) < 3 or not all(0 < rate < math.inf for rate in rates):
        parser.error(f"--rates is {text!r}, expected at least three different numbers above 0")
    return rates


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    setting = convergence.Setting(options.task, options.steps or convergence.STEPS[options.task], options.ranks)
    known = read(options.output)
    searches = []
    for name in options.names:
        chosen = trained_with(recipe(name), options.optimizer)
        first = options.first or FIRST_RATES[chosen.optimizer(options.task).kind]
        search = Search(chosen, setting, options.seed, first)
        search.tried = tried_before(known, search)
        searches.append(search)
    tune(searches, options.output, options.workers)
    if options.json:
        print(json.dumps({search.name: {"task": options.task, **search.entry()} for search in searches}, indent=2))
    else:
        print(table(searches))
    stuck = [search.name for search in searches if search.tried[search.best] == WORST]
    if stuck:
        print(f"tune: no rate that was tried lets these converge: {', '.join(stuck)}", file=sys.stderr)
    return 1 if stuck else 0
