"""The training job: run by every rank. All schemes train one model, from equal weights on equal data.

    mpirun -np 4 python -m quickstart_job.train --task text --schemes s-sgd,dgc --steps 200 --out build/quickstart

Rank 0 shows progress and writes DIR/summary.json, DIR/losses.png and DIR/timeline.json (open it in ui.perfetto.dev).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

import penstock.torch as hvd

from . import report
from .apart import TrainingApart
from .data import DataError, Task, make_task
from .figures import Result, baseline, steps_until, target_of, window
from .progress import Progress, TimeLeft
from .recipes import KNOWN, QUICKSTART, Recipe, recipe, recipe_of_file
from .training import Training

DEFAULT_STEPS = {"text": 200, "digits": 100}


def train_all(options: argparse.Namespace, task: Task, recipes: Sequence[Recipe]) -> list[Result]:
    """Trains every scheme for --steps steps. Then each scheme continues, up to --most-steps, until it has reached the loss of the
    first dense scheme after 80 % of its steps."""
    style = options.progress if hvd.rank() == 0 else "none"
    time_left = TimeLeft(len(recipes), options.steps)
    count, chunk = window(options.steps), max(1, options.steps // 20)
    results: list[Result] = []
    for place, chosen in enumerate(recipes, 1):
        # A file of the user's configures the runtime itself; the job's own schemes go with their optimizers.
        own = options.config is not None and chosen.file == options.config
        kind = TrainingApart if chosen.rounds else Training
        training = kind(task, chosen, None if own else chosen.text(options.bucket_bytes), options.seed)
        label = f"{chosen.label} ({place} of {len(recipes)})" if len(recipes) > 1 else chosen.label
        progress = Progress(f"{label:<26}", options.steps, task.unit, style, time_left.seconds)
        time_left.begin()
        training.run(options.steps, progress, time_left)
        validation = training.validation()
        dense = baseline(results)
        progress.extend(options.most_steps if dense else options.steps)
        while dense and len(training.losses) < options.most_steps:
            if steps_until(training.losses, target_of(dense), count) is not None:
                break
            training.run(min(chunk, options.most_steps - len(training.losses)), progress, time_left)
        progress.close()
        results.append(training.result(options.steps, validation))
    return results


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="quickstart_job.train", description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=tuple(DEFAULT_STEPS), default="text")
    parser.add_argument("--schemes", help=f"comma-separated, of {', '.join(KNOWN)}; default: the main job's, none with --config")
    parser.add_argument("--config", type=Path, help="a scheme from a TOML file, as it stands; comes last")
    parser.add_argument("--steps", type=int, help="per scheme; default: 200 for text, 100 for digits")
    parser.add_argument(
        "--most-steps", type=int, help="where a scheme ends that does not reach dense's loss before; default: --steps"
    )
    parser.add_argument("--bucket-bytes", type=int, help="most uncompressed bytes in a bucket; default: the scheme's own")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--link", help="the rate of the links between the ranks, to be told in the summary")
    parser.add_argument("--out", type=Path, default=Path("build/quickstart"))
    parser.add_argument("--progress", choices=("auto", "bar", "lines", "none"), default="auto")
    options = parser.parse_args(arguments)
    options.steps = DEFAULT_STEPS[options.task] if options.steps is None else options.steps
    options.most_steps = options.steps if options.most_steps is None else max(options.steps, options.most_steps)
    for name in ("steps", "bucket_bytes"):
        value = getattr(options, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} is {value}, expected at least 1")
    return options


def chosen_recipes(options: argparse.Namespace) -> list[Recipe]:
    """The schemes to train, in their order. ValueError if a name is wrong."""
    names = options.schemes if options.schemes is not None else "" if options.config else ",".join(QUICKSTART)
    recipes = [recipe(name) for name in names.split(",") if name]
    if options.config is not None:
        recipes.append(recipe_of_file(options.config))
    if not recipes:
        raise ValueError("--schemes is empty, expected at least one scheme")
    return recipes


def finish(options: argparse.Namespace, task: Task, results: Sequence[Result]) -> None:
    """Rank 0's last words: the table and the files."""
    settings = {
        "task": task.name, "unit": task.unit, "ranks": hvd.size(), "link": options.link, "steps": options.steps,
        "most_steps": options.most_steps, "bucket_bytes": options.bucket_bytes, "seed": options.seed,
    }  # fmt: skip
    report.write_summary(options.out / "summary.json", settings, results)
    report.plot_losses(options.out / "losses.png", settings, results)
    print(report.last_words(options.out, settings, results))


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    torch.set_num_threads(1)  # ranks share the cores; one thread also fixes the order of sums
    try:
        recipes = chosen_recipes(options)
        task = make_task(options.task)
        options.out.mkdir(parents=True, exist_ok=True)
    except (DataError, ValueError, OSError) as error:
        print(f"quickstart: {error}", file=sys.stderr)
        return 2

    hvd.init(config=str(options.config) if options.config is not None else None)
    hvd.start_timeline(str(options.out / "timeline.json"))  # rank 0's
    results = train_all(options, task, recipes)
    hvd.stop_timeline()
    if hvd.rank() == 0:
        finish(options, task, results)
    apart = [result.label for result in results if not result.replicas_equal]
    hvd.shutdown()
    if apart:
        print(f"quickstart: the ranks ended with different weights under {', '.join(apart)}", file=sys.stderr)
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
