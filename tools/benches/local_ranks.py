"""The ranks of tools/bench local: `python -m benches.local_ranks JOB.json`, on every rank.

The training goes on from its last saved state. A save has a file for each rank and state.json, which rank 0 writes last: until then the
save before it counts, and its files stay. So a run may be killed at any moment.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import time
from pathlib import Path

import torch
from quickstart_job.data import DataError, Task, make_task
from quickstart_job.optimizers import Optimizer
from quickstart_job.progress import Progress

import penstock.torch as hvd
from benches.local_contestants import Job, contestant, state_of


def fingerprint(model: torch.nn.Module) -> str:
    """Hash of the bits of all weights."""
    sha = hashlib.sha256()
    for parameter in model.parameters():
        sha.update(parameter.detach().contiguous().numpy().tobytes())
    return sha.hexdigest()


class Training:
    """One job on this rank."""

    def __init__(self, task: Task, job: Job, folder: Path, save_every: int) -> None:
        self.task, self.job, self.save_every = task, job, save_every
        self.contestant = contestant(job.name)
        self.folder = folder
        self.model = task.make_model(job.seed)
        self.common = task.make_model(job.seed)  # takes the anchors that are evaluated
        inner = Optimizer("adamw", job.rate, 0.9).make(self.model.parameters())
        self.optimizer = self.contestant.wrap(inner, self.model.named_parameters(), job.every)
        self.state = state_of(self.folder)  # rank 0's is written; all ranks read the same
        self._bytes_before = self.state["payload_bytes"]
        if self.state["step"]:
            self._load()

    # ---- the state ----

    def _file(self, step: int) -> Path:
        return self.folder / f"rank-{hvd.rank()}.{step}.pt"

    def _load(self) -> None:
        saved = torch.load(self._file(self.state["step"]), weights_only=True)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])

    def _save(self) -> None:
        """Keeps the state of this moment, and then forgets the one before. Collective."""
        step = self.state["step"]
        optimizer = {**self.optimizer.state_dict(), **self.optimizer.compression_state_dict()}
        self.state["payload_bytes"] = self._payload()  # now with those of an exchange under way: its result is in the state
        torch.save({"model": self.model.state_dict(), "optimizer": optimizer}, self._file(step))
        hvd.barrier()
        self._write()
        hvd.barrier()
        for old in self.folder.glob(f"rank-{hvd.rank()}.*.pt"):
            if old != self._file(step):
                old.unlink()

    def _write(self) -> None:
        if hvd.rank() == 0:
            partial = self.folder / "state.partial"
            partial.write_text(json.dumps({**vars(self.job), **self.state}, indent=1) + "\n")
            partial.replace(self.folder / "state.json")

    # ---- training ----

    def run(self, until: int, style: str) -> None:
        """Trains up to step `until` or the last one. Collective."""
        last = min(until, self.job.steps)
        progress = Progress(f"{self.job.name} {self.job.rate:g}", last, self.task.unit, style if hvd.rank() == 0 else "none")
        if progress.bar is not None:
            progress.bar.update(self.state["step"])
        losses: list[float] = []
        for step in range(self.state["step"], last):
            began = time.perf_counter()
            losses.append(self._step(step))
            progress.update(step, losses[-1], self._payload() / (step + 1), 1e3 * (time.perf_counter() - began))
            if (step + 1) % self.save_every == 0 or step + 1 == last:
                self._note(step + 1, losses)
                losses = []
        progress.close()

    def _step(self, step: int) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = self.job.rate_at(step)
        self.optimizer.zero_grad()
        loss = self.task.loss(self.model, self.task.batch(self.job.seed, step, hvd.rank()))
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def _payload(self) -> int:
        """Bytes that this rank has handed to the transport since the first step."""
        return self._bytes_before + self.optimizer.counters()["payload_bytes"]

    def _note(self, step: int, losses: list[float]) -> None:
        """A point of the curve, and a save."""
        trained = torch.tensor(sum(losses) / len(losses), dtype=torch.float64)
        trained = hvd.allreduce(trained, op=hvd.Average, name=f"trained.{self.folder.name}.{step}")
        self.state["step"] = step
        self.state["curve"].append({"step": step, "bits": self._evaluate_common(), "training_nats": float(trained)})
        self._save()

    def _evaluate_common(self) -> float:
        """The loss on held-out text of the model that all ranks share now, without an exchange."""
        if not self.contestant.apart:
            self.optimizer.flush()  # a scheduler may have left updates for a next forward
            return self._bits(self.model, "model")
        self.common.load_state_dict(self.optimizer.anchors())
        return self._bits(self.common, "anchors")

    def _bits(self, model: torch.nn.Module, what: str) -> float:
        """Validation loss in bits per target of a model that is equal on all ranks. Each rank takes a part of the samples."""
        inputs, targets = (part[hvd.rank() :: hvd.size()] for part in self.task.validation())
        sums = torch.zeros(2, dtype=torch.float64)
        with torch.no_grad():
            for x, y in zip(inputs.split(64), targets.split(64)):
                sums += torch.tensor([float(self.task.loss(model, (x, y))) * y.numel(), y.numel()], dtype=torch.float64)
        name = f"{what}.{self.folder.name}.{self.state['step']}"
        nats, count = hvd.allreduce(sums, op=hvd.Sum, name=name).tolist()
        return nats / count / math.log(2.0)

    def close(self) -> None:
        """Evaluates the model of the end, if the last step is done, and releases the optimizer. Collective."""
        if self.state["step"] == self.job.steps and "final" not in self.state:
            if self.contestant.apart:
                self.optimizer.synchronize()
            prints = hvd.allgather_object(fingerprint(self.model), name=f"fingerprint.{self.folder.name}")
            self.state["final"] = {"bits": self._bits(self.model, "end"), "replicas_equal": len(set(prints)) == 1}
            self._write()
        self.optimizer.close()


def main(file: Path) -> int:
    torch.set_num_threads(1)  # ranks share the cores; one thread also fixes the order of sums
    wanted = json.loads(file.read_text())
    job = Job(**wanted["job"])
    try:
        task = make_task(job.task)
    except DataError as error:
        print(f"bench local: {error}", file=sys.stderr)
        return 2
    hvd.init()
    training = Training(task, job, file.parent, wanted["save_every"])
    training.run(wanted["until"], wanted["progress"])
    training.close()
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
