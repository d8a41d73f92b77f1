"""Every rank runs this: trains under each setting of settings.py. Rank 0 writes the mean losses of every step as
JSON to FILE."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from quickstart_job import toml_text
from quickstart_job.data import make_task

import penstock.torch as hvd

sys.path.insert(0, str(Path(__file__).resolve().parent))
from settings import SEED, SETTINGS, STEPS, TASK, Setting  # noqa: E402


def losses_of(name: str, setting: Setting) -> list[float]:
    task = make_task(TASK)
    model = task.make_model(SEED)
    plain = torch.optim.SGD(model.parameters(), lr=setting.rate)
    text = toml_text.dump({key: value for key, value in setting.table.items() if key != "runtime"})
    optimizer = hvd.DistributedOptimizer(
        plain, named_parameters=model.named_parameters(), scheme=text, **setting.given
    )
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = task.loss(model, task.batch(SEED, step, hvd.rank()))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    optimizer.flush()
    optimizer.close()
    return hvd.allreduce(torch.tensor(losses, dtype=torch.float64), op=hvd.Average, name=f"losses.{name}").tolist()


def main(file: str) -> None:
    torch.set_num_threads(1)
    hvd.init()
    losses = {name: losses_of(name, setting) for name, setting in SETTINGS.items()}
    if hvd.rank() == 0:
        Path(file).write_text(json.dumps(losses))
    hvd.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
