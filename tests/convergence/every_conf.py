"""Every rank runs this: trains the digits under every file of conf/, each scheme with an optimizer of its own.

    mpirun -np 3 python every_conf.py straight FOLDER   trains STEPS steps and saves in the middle; each rank's save and
                                                        end go to FOLDER
    mpirun -np 3 python every_conf.py resume FOLDER     continues from the saves in new processes and compares

The third argument may be a route. The next arguments are the files that can take this route, and they train on it.

Measured times decide which gradients some schedulers keep dense, so such a scheduler never gets measured times here.
In both modes ranks compare their parameters. Rank 0 prints one line per failed file; then the status is 1.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from quickstart_job import toml_text
from quickstart_job.data import DigitsTask
from quickstart_job.recipes import CONF, Recipe, recipe_of_file
from quickstart_job.training import fingerprint

import penstock.torch as hvd

STEPS = 6
SEED = 1


def text_of(chosen: Recipe) -> str:
    table = toml_text.load(chosen.file)
    if "candidates" in table["scheme"]:  # measured times may choose differently in another run
        chosen = replace(chosen, changes={**chosen.changes, f"scheduler.{table['scheme']['scheduler']}.profile_steps": 100})
    return chosen.text()


def build(chosen: Recipe, task: DigitsTask) -> tuple[torch.nn.Module, Any]:
    model = task.make_model(SEED)
    plain = chosen.optimizer(task.name).make(model.parameters())
    return model, hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters(), scheme=text_of(chosen))


def train(model: torch.nn.Module, optimizer: Any, task: DigitsTask, first: int, last: int) -> None:
    for step in range(first, last):
        optimizer.zero_grad()
        loss = task.loss(model, task.batch(SEED, step, hvd.rank()))
        assert torch.isfinite(loss), f"the loss of step {step} is {loss.item()}"
        loss.backward()
        optimizer.step()


def run(chosen: Recipe, task: DigitsTask, folder: Path, resume: bool) -> None:
    """One file, straight on or from its save. AssertionError if bits differ."""
    file = folder / f"{chosen.name}.rank{hvd.rank()}.pt"
    model, optimizer = build(chosen, task)
    start = fingerprint(model)
    if resume:
        saved = torch.load(file, weights_only=False)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        train(model, optimizer, task, STEPS // 2, STEPS)
    else:
        train(model, optimizer, task, 0, STEPS // 2)
        # state_dict() applies updates that a scheduler deferred to the next forward, so parameters are read afterwards.
        state = {**optimizer.state_dict(), **hvd.state_dict(optimizer)}
        saved = copy.deepcopy({"optimizer": state, "model": model.state_dict()})
        train(model, optimizer, task, STEPS // 2, STEPS)
    optimizer.flush()
    end = fingerprint(model)
    optimizer.close()
    assert end != start, "nothing was trained"
    everywhere = hvd.allgather_object(end, name=f"end.{chosen.name}")
    assert len(set(everywhere)) == 1, "ranks end with different parameters"
    if resume:
        assert end == saved["end"], "a resumed run differs from the one that went straight on"
    else:
        torch.save(saved | {"end": end}, file)


def main(mode: str, folder: str, route: str = "", *names: str) -> int:
    torch.set_num_threads(1)
    hvd.init()
    task = DigitsTask()
    files = [CONF / name for name in names] or sorted(CONF.glob("*.toml"))
    failed = []
    for path in files:
        try:
            chosen = recipe_of_file(path)
            if route:
                chosen = replace(chosen, changes={**chosen.changes, "scheme.route": route})
            run(chosen, task, Path(folder), mode == "resume")
        except AssertionError as error:  # all ranks compare equal values, so they go on together
            failed.append(f"{path.name}: {error}")
        except Exception as error:
            raise RuntimeError(f"{path.name} on rank {hvd.rank()}: {error}") from error
    if hvd.rank() == 0:
        print("\n".join([*failed, f"{len(files)} files, {len(failed)} failed"]), flush=True)
    hvd.shutdown()
    return 1 if failed or not files else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
