"""Convergence: every scheme against an independent simulation of its method, from the same weights and data.

For each scheme and seed the job of tools/quickstart_job runs on real ranks, and tests/oracle simulates these ranks
in one process. The first losses are compared step by step. The validation losses at the end are compared as means
over seeds. Results are cached under a hash of their inputs, so an interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import glob
import json
import math
import multiprocessing
import os
import re
import shlex
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
for room in ("tools", "tests"):
    sys.path.insert(0, str(REPOSITORY / room))

from benches import run_keys  # noqa: E402
from benches.convergence_page import against_the_search, write_section  # noqa: E402
from quickstart_job import launch  # noqa: E402
from quickstart_job.optimizers import searched  # noqa: E402
from quickstart_job.recipes import KNOWN, Recipe, recipe  # noqa: E402

CACHE = REPOSITORY / "build/bench/convergence"
STEPS_PER_LAUNCH = 2000  # an interruption loses at most so many
STEPS = {"text": 200, "digits": 80}  # of a run; on digits dense training does not improve after that
FIRST_LOSSES = 20
FIRST_TOLERANCE = 1e-3  # relative
FINAL_TOLERANCE = 0.02  # bits, or the spread over seeds where that is larger
WELL_BELOW = 0.9  # of the first loss: two runs that learn nothing agree too

# Schemes that select by a sample, or round by chance to a neighbour twice as large. A difference in the last bit of a
# gradient changes the payload. Single losses may differ, but not the curve.
SAMPLING = {"dgc", "natural"}


@dataclass(frozen=True)
class Setting:
    """The settings of all runs of one comparison."""

    task: str
    steps: int
    ranks: int = 4


@dataclass(frozen=True)
class Comparison:
    """One scheme, both ways, over all seeds."""

    name: str
    label: str
    setting: str  # differences from the file in conf/
    optimizer: str
    payload_bytes: float  # per rank and step, as handed to the transport
    first_gap: float  # largest relative difference among the first losses, any seed
    real_bits: float  # means over seeds
    first_seed_bits: float  # of the runtime
    simulated_bits: float
    first_seed_simulated_bits: float
    searched_bits: float | None  # the result of the search for the rate with the first seed, on the machine of the search
    seeds: int
    spread: float  # largest difference between two seeds of one side; with one seed: the spread of the dense scheme
    trains: bool  # every run ends well below where it began

    @property
    def first_agrees(self) -> bool:
        return self.name in SAMPLING or self.first_gap <= FIRST_TOLERANCE

    @property
    def agrees(self) -> bool:
        return self.trains and self.first_agrees and self.final_agrees

    @property
    def verdict(self) -> str:
        if not self.trains:
            return "**does not train**"
        return "agrees" if self.agrees else "**differs**"

    @property
    def final_agrees(self) -> bool:
        return abs(self.real_bits - self.simulated_bits) <= max(self.spread, FINAL_TOLERANCE)


def _cached(key: str) -> dict[str, Any] | None:
    path = CACHE / f"{key}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _store(key: str, run: dict[str, Any]) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    partial = CACHE / f"{key}.partial"
    partial.write_text(json.dumps(run))
    partial.replace(CACHE / f"{key}.json")


@functools.cache
def _task(name: str) -> Any:
    from quickstart_job.data import make_task

    return make_task(name)


def _scheme(chosen: Recipe, setting: Setting, model: Any) -> Any:
    from oracle.schemes import items_of, make_scheme

    return make_scheme(chosen.table(), items_of(model), setting.ranks)


def _imported(path: Path, found: set[Path]) -> set[Path]:
    """The module, and the modules of its folder that it imports, directly or through others."""
    if path not in found:
        found.add(path)
        for name in re.findall(r"^from \.(\w+) import", path.read_text(), re.MULTILINE):
            _imported(path.with_name(f"{name}.py"), found)
    return found


def _setting(value: Any) -> Any:
    """A value that differs for different settings; for a function: its name and its closure."""
    if callable(value) and hasattr(value, "__qualname__"):
        cells = getattr(value, "__closure__", None) or ()
        return value.__qualname__, [_setting(cell.cell_contents) for cell in cells]
    plain = isinstance(value, (bool, int, float, str, tuple)) or is_dataclass(value)
    return repr(value) if plain else None


def _state(method: Any) -> str:
    """The arguments of a method: its settings, not its tensors."""
    settings = {name: _setting(value) for name, value in vars(method).items()}
    return repr((type(method).__name__, [repr(item) for item in method.items], sorted(settings.items())))


def simulated_key(chosen: Recipe, setting: Setting, seed: int) -> str:
    """Depends on methods, their settings and their source. So schemes that differ only in scheduler or transport share
    a simulation."""
    scheme = _scheme(chosen, setting, _task(setting.task).make_model(seed))
    methods = scheme.methods
    files = {REPOSITORY / "tests/oracle" / name for name in ("training.py", *(["apart.py"] if chosen.rounds else []))}
    for made in (*methods, scheme):
        _imported(Path(sys.modules[type(made).__module__].__file__ or ""), files)
    apart = [vars(chosen.rounds)] if chosen.rounds else []
    facts = [json.dumps([sorted(map(_state, methods)), vars(chosen.optimizer(setting.task)), vars(setting), seed, *apart]).encode()]
    facts += [json.dumps(chosen.table()["switch"]).encode()] if "switch" in chosen.table() else []
    return "simulated-" + run_keys.digest(facts + run_keys.of_the_task() + [path.read_bytes() for path in sorted(files)])


def _words(table: Any) -> set[str]:
    """Every text in a parsed file, keys and values."""
    if isinstance(table, dict):
        return set(table) | {word for value in table.values() for word in _words(value)}
    if isinstance(table, list):
        return {word for value in table for word in _words(value)}
    return {table} if isinstance(table, str) else set()


def real_key(chosen: Recipe, setting: Setting, seed: int) -> str:
    """Scheme, job, frontend, the core as built and the plugins that the scheme names."""
    rounds = vars(chosen.rounds) if chosen.rounds else {}
    facts = [json.dumps([chosen.name, chosen.text(), rounds, vars(chosen.optimizer(setting.task)), vars(setting), seed], sort_keys=True).encode()]
    job = (f"tools/quickstart_job/{name}.py" for name in ("train", "training", "apart"))
    built = run_keys.code(*job, "frontends/python/penstock/**/*.py", "build/release/lib/*.so")
    for word in sorted(_words(chosen.table()) | {"mpi", "none"}):
        built += run_keys.code(f"build/release/lib/penstock/plugins/*-{glob.escape(word)}.so")
    return "real-" + run_keys.digest(facts + run_keys.of_the_task() + built)


def simulated(
    chosen: Recipe,
    setting: Setting,
    seed: int,
    progress_style: str = "auto",
    watch: Callable[[int, float], None] = lambda step, loss: None,
) -> dict[str, Any]:
    """The simulation's losses and validation, from the cache or made now. `watch` sees each step's loss and may end
    the run by an exception, which leaves nothing in the cache."""
    key = simulated_key(chosen, setting, seed)
    run = _cached(key)
    if run is None:
        import torch
        from oracle import apart, late, training
        from quickstart_job.progress import Progress

        torch.set_num_threads(1)  # like every rank: then sums have one order
        task = _task(setting.task)
        progress = Progress(f"{chosen.label} (sim)", setting.steps, task.unit, progress_style)

        def on_step(step: int, loss: float) -> None:
            progress.update(step, loss)
            watch(step, loss)

        simulate = training.simulate
        if chosen.rounds:
            simulate = functools.partial(apart.simulate_apart, **vars(chosen.rounds))
        elif "apply" in chosen.table()["scheme"]:
            simulate = late.simulate_late
        run = simulate(
            task,
            lambda model: _scheme(chosen, setting, model),
            ranks=setting.ranks,
            steps=setting.steps,
            seed=seed,
            make_optimizer=chosen.optimizer(setting.task).make,
            on_step=on_step,
        ).as_json()
        progress.close()
        _store(key, run)
    return run


def _simulate_quietly(name: str, setting: Setting, seed: int) -> None:
    simulated(recipe(name), setting, seed, "none")


def simulate_missing(wanted: Iterable[tuple[Recipe, int]], setting: Setting) -> None:
    """Fills the cache, one process per core, because a simulation has one thread. Stores each result at once."""
    missing = {simulated_key(chosen, setting, seed): (chosen, seed) for chosen, seed in wanted}
    missing = {key: run for key, run in missing.items() if _cached(key) is None}
    if not missing:
        return
    from tqdm import tqdm

    workers = min(len(missing), len(os.sched_getaffinity(0)))
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    with concurrent.futures.ProcessPoolExecutor(workers, context) as pool:
        runs = [pool.submit(_simulate_quietly, chosen.name, setting, seed) for chosen, seed in missing.values()]
        for run in tqdm(concurrent.futures.as_completed(runs), "simulations", len(runs), unit="run"):
            run.result()


def real(recipes: Sequence[Recipe], setting: Setting, seed: int) -> dict[str, dict[str, Any]]:
    """Runs of the job by scheme name; those not in the cache are made, several in a launch, which saves the start."""
    keys = {chosen.name: real_key(chosen, setting, seed) for chosen in recipes}
    missing = [name for name, key in keys.items() if _cached(key) is None]
    together = max(1, STEPS_PER_LAUNCH // setting.steps)
    for first in range(0, len(missing), together):
        out = CACHE / "runs" / f"{setting.task}-{setting.steps}-{seed}"
        launched = missing[first : first + together]
        summary = launch.run_job(
            ranks=setting.ranks, task=setting.task, schemes=launched, steps=setting.steps, seed=seed, out=out
        )
        for entry in summary["schemes"]:
            _store(keys[entry["name"]], entry)
        print(f"seed {seed}: {first + len(launched)} of {len(missing)} runs done", file=sys.stderr, flush=True)
    return {name: _cached(key) or {} for name, key in keys.items()}


def first_gap(a: Sequence[float], b: Sequence[float]) -> float:
    """Largest relative difference among the first losses."""
    return max(abs(x - y) / abs(y) for x, y in zip(a[:FIRST_LOSSES], b[:FIRST_LOSSES], strict=True))


def trains(run: Mapping[str, Any]) -> bool:
    """Whether a run ends well below where it began."""
    return run["bits"] < WELL_BELOW * run["losses"][0] / math.log(2)


def compare(
    names: Sequence[str], setting: Setting, seeds: Sequence[int], one_seed: Sequence[str] = ()
) -> list[Comparison]:
    """Both sides of every scheme over every seed; over the first seed alone for those in `one_seed`."""
    seeds_of = {name: seeds[:1] if name in one_seed else seeds for name in names}
    recipes = {name: recipe(name) for name in names}
    simulate_missing([(recipes[name], seed) for name in names for seed in seeds_of[name]], setting)
    by_seed = {
        seed: real([recipes[name] for name in names if seed in seeds_of[name]], setting, seed) for seed in seeds
    }
    comparisons = []
    for name, chosen in recipes.items():
        ours = [by_seed[seed][name] for seed in seeds_of[name]]
        theirs = [simulated(chosen, setting, seed) for seed in seeds_of[name]]
        sides = [[run["bits"] for run in side] for side in (ours, theirs)]
        comparisons.append(
            Comparison(
                name=name,
                label=chosen.label,
                setting=chosen.setting,
                optimizer=chosen.optimizer(setting.task).words,
                first_gap=max(first_gap(a["losses"], b["losses"]) for a, b in zip(ours, theirs)),
                real_bits=statistics.mean(sides[0]),
                first_seed_bits=sides[0][0],
                simulated_bits=statistics.mean(sides[1]),
                first_seed_simulated_bits=sides[1][0],
                searched_bits=searched_bits(chosen, setting, seeds[0]),
                seeds=len(ours),
                spread=max(max(side) - min(side) for side in sides),
                trains=all(map(trains, ours + theirs)),
                payload_bytes=statistics.mean(run["payload_bytes_per_step"] for run in ours),
            )
        )
    return _with_spread_of_dense(comparisons)


def _with_spread_of_dense(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Gives rows of one seed the spread of the dense scheme, because one seed has no spread."""
    dense = next((c.spread for c in comparisons if c.name == "s-sgd"), 0.0)
    return [replace(c, spread=dense) if c.seeds == 1 else c for c in comparisons]


def gap_to(dense: Comparison, other: Comparison) -> float:
    """Bits above the dense scheme, over seeds that both rows have, because some seeds are easier than others."""
    if other.seeds == dense.seeds:
        return other.real_bits - dense.real_bits
    return other.first_seed_bits - dense.first_seed_bits


def searched_bits(chosen: Recipe, setting: Setting, seed: int) -> float | None:
    """The loss in tuned.toml for this scheme at its rate, if the search had this setting."""
    optimizer = chosen.optimizer(setting.task)
    entry = searched(setting.task, chosen.name)
    facts = ("optimizer", "momentum", "setting", "steps", "ranks", "seed")
    wanted = (optimizer.kind, optimizer.momentum, chosen.setting, setting.steps, setting.ranks, seed)
    found = tuple(entry.get(fact) for fact in facts) == wanted
    return {float(rate): float(bits) for rate, bits in entry["tried"]}.get(optimizer.rate) if found else None


def markdown(comparisons: Sequence[Comparison], setting: Setting, command: str) -> str:
    """The comparison as a section of docs/convergence.md."""
    dense = next((c for c in comparisons if c.name == "s-sgd"), None)
    lines = [
        f"Task {setting.task}, {setting.steps} steps, {setting.ranks} ranks:",
        f"`{command}`.",
        "",
        "| scheme | setting | optimizer | seeds | first losses, largest gap | runtime | simulation | difference | spread | bytes | gap to dense |"
        " verdict |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for c in comparisons:
        first = f"{c.first_gap:.1e}" + (" (samples)" if c.name in SAMPLING else "")
        gap = f"{gap_to(dense, c):+.3f}" if dense else "-"
        lines.append(
            f"| {c.label} | {c.setting} | {c.optimizer} | {c.seeds} | {first} | {c.real_bits:.4f} | {c.simulated_bits:.4f} |"
            f" {c.real_bits - c.simulated_bits:+.4f} | {f'{c.spread:.4f}' if c.seeds > 1 else 'one seed'} | {c.payload_bytes:,.0f} | {gap} | {c.verdict} |"
        )
    note = against_the_search(comparisons)
    return "\n".join(lines) + "\n" + (f"\n{note}" if note else "")


# Puts a section with a title and a text into the page.
put = functools.partial(
    write_section, REPOSITORY / "docs/convergence.md", digits_steps=STEPS["digits"], first_losses=FIRST_LOSSES,
    first_tolerance=FIRST_TOLERANCE, final_tolerance=FINAL_TOLERANCE, well_below=WELL_BELOW,
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools/bench convergence", description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=tuple(STEPS), default="text")
    parser.add_argument("--steps", type=int, help=f"default: {', '.join(f'{steps} for {task}' for task, steps in STEPS.items())}")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seeds", default="1,2,3", help="comma-separated")
    parser.add_argument("--schemes", default=",".join(KNOWN), help="comma-separated names of files in conf/")
    parser.add_argument("--one-seed", default="", help="comma-separated names: these with the first seed alone")
    parser.add_argument("--write", metavar="TITLE", help="put the table into docs/convergence.md, as the section of that title")
    options = parser.parse_args(arguments)
    setting = Setting(options.task, options.steps or STEPS[options.task], options.ranks)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    names = [name for name in options.schemes.split(",") if name]
    one_seed = [name for name in options.one_seed.split(",") if name]
    try:
        comparisons = compare(list(dict.fromkeys(names + one_seed)), setting, seeds, one_seed)
    except (ValueError, launch.LaunchError) as error:
        print(f"convergence: {error}", file=sys.stderr)
        return 2
    words = sys.argv[1:] if arguments is None else list(arguments)
    text = markdown(comparisons, setting, shlex.join(["tools/bench", "convergence", *words]))
    print(text)
    if options.write:
        put(options.write, text)
    return 0 if all(c.agrees for c in comparisons) else 1


if __name__ == "__main__":
    sys.exit(main())
