"""The training job: run by every rank. Each scheme trains the same model from the same weights on the same data.

    mpirun -np 4 python -m quickstart_job.train --task text --schemes s-sgd,dgc --steps 400 --out build/quickstart

Rank 0 shows progress and writes DIR/summary.json, DIR/losses.png and DIR/timeline.json (open it in ui.perfetto.dev).
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

import penstock.torch as hvd

from . import report
from .data import DataError, Task, make_task
from .recipes import KNOWN, QUICKSTART, Recipe, recipe, recipe_of_file

DEFAULT_STEPS = {"text": 400, "digits": 200}


def fingerprint(model: nn.Module) -> str:
    """Hash of the bits of all weights."""
    sha = hashlib.sha256()
    for parameter in model.parameters():
        sha.update(parameter.detach().contiguous().numpy().tobytes())
    return sha.hexdigest()


def train(task: Task, chosen: Recipe, scheme: str | None, steps: int, seed: int, style: str) -> report.Result:
    """Trains under one scheme (none: the runtime's). Every rank gets the same losses; times and bytes are its own."""
    model = task.make_model(seed)
    sgd = chosen.optimizer(task.name)
    plain = torch.optim.SGD(model.parameters(), lr=sgd["learning_rate"], momentum=sgd["momentum"])
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters(), scheme=scheme)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    rank = hvd.rank()
    progress = report.Progress(chosen.label, steps, task.unit, style if rank == 0 else "none")
    losses: list[float] = []
    step_ms: list[float] = []
    for step in range(steps):
        batch = task.batch(seed, step, rank)
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = task.loss(model, batch)
        loss.backward()
        optimizer.step()
        step_ms.append(1e3 * (time.perf_counter() - start))
        losses.append(float(loss.detach()))
        progress.update(step, losses[-1], optimizer.counters()["payload_bytes"] / (step + 1), step_ms[-1])
    progress.close()

    optimizer.flush()  # a scheduler may have left updates for a next forward
    counters = optimizer.counters()
    optimizer.close()
    validation = task.evaluate(model)
    mean = hvd.allreduce(torch.tensor(losses, dtype=torch.float64), op=hvd.Average, name=f"losses.{chosen.name}")
    prints = hvd.allgather_object(fingerprint(model), name=f"fingerprint.{chosen.name}")
    return report.Result(
        name=chosen.name,
        label=chosen.label,
        bits=validation["bits"],
        accuracy=validation["accuracy"],
        payload_bytes_per_step=counters["payload_bytes"] / steps,
        gradient_bytes_per_step=counters["gradient_bytes"] / steps,
        step_ms=step_ms,
        losses=mean.tolist(),
        replicas_equal=len(set(prints)) == 1,
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="quickstart_job.train", description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=tuple(DEFAULT_STEPS), default="text")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--schemes", default=",".join(QUICKSTART), help=f"comma-separated, of {', '.join(KNOWN)}")
    which.add_argument("--config", type=Path, help="one scheme from a TOML file, as it stands")
    parser.add_argument("--steps", type=int, help="per scheme; default: 400 for text, 200 for digits")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/quickstart"))
    parser.add_argument("--progress", choices=("auto", "bar", "lines", "none"), default="auto")
    return parser.parse_args(arguments)


def finish(options: argparse.Namespace, task: Task, steps: int, results: Sequence[report.Result]) -> None:
    """Rank 0's last words: the table and the files."""
    settings = {"task": task.name, "unit": task.unit, "ranks": hvd.size(), "steps": steps, "seed": options.seed}
    report.write_summary(options.out / "summary.json", settings, results)
    report.plot_losses(options.out / "losses.png", results, task.unit)
    print(f"\n{task.name}, {hvd.size()} ranks, {steps} steps per scheme, seed {options.seed}\n")
    print(report.table(results, task.unit))
    print(f"\nsummary, curves and timeline: {options.out}/summary.json, losses.png, timeline.json (ui.perfetto.dev)")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    torch.set_num_threads(1)  # ranks share the cores; one thread also fixes the order of sums
    steps = options.steps if options.steps is not None else DEFAULT_STEPS[options.task]
    if steps < 1:
        print(f"--steps is {steps}, expected at least 1", file=sys.stderr)
        return 2
    try:
        recipes = (
            [recipe_of_file(options.config)]
            if options.config is not None
            else [recipe(name) for name in options.schemes.split(",")]
        )
        task = make_task(options.task)
        options.out.mkdir(parents=True, exist_ok=True)
    except (DataError, ValueError, OSError) as error:
        print(f"quickstart: {error}", file=sys.stderr)
        return 2

    # A file of the user's configures the runtime itself; the job's own schemes go with their optimizers, in one launch.
    own = options.config is not None
    hvd.init(config=str(options.config) if own else None)
    hvd.start_timeline(str(options.out / "timeline.json"))  # rank 0's
    results = [
        train(task, chosen, None if own else chosen.text(), steps, options.seed, options.progress) for chosen in recipes
    ]
    hvd.stop_timeline()
    if hvd.rank() == 0:
        finish(options, task, steps, results)
    apart = [result.label for result in results if not result.replicas_equal]
    hvd.shutdown()
    if apart:
        print(f"quickstart: the ranks ended with different weights under {', '.join(apart)}", file=sys.stderr)
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
