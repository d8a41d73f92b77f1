"""The training of one scheme: gradients are exchanged in every step."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

import penstock.torch as hvd

from .data import Task
from .figures import Result
from .progress import Progress, TimeLeft
from .recipes import Recipe

COUNTED = ("payload_bytes", "moved_bytes", "dense_moved_bytes", "gradient_bytes")


def fingerprint(model: nn.Module) -> str:
    """Hash of the bits of all weights."""
    sha = hashlib.sha256()
    for parameter in model.parameters():
        sha.update(parameter.detach().contiguous().numpy().tobytes())
    return sha.hexdigest()


class Training:
    """The training of one scheme on this rank. Losses are equal on every rank; times and bytes are those of this rank."""

    def __init__(self, task: Task, chosen: Recipe, scheme: str | None, seed: int) -> None:
        """`scheme`: none for the runtime's own."""
        self.task, self.chosen, self.seed = task, chosen, seed
        self.model = task.make_model(seed)
        settings = chosen.optimizer(task.name)
        self.optimizer_words = settings.words
        self.optimizer = self._exchanging(settings.make(self.model.parameters()), scheme)
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        hvd.barrier()  # rank 0 would begin its first step, and the measured time, before the last rank has the weights
        self.losses: list[float] = []  # mean over ranks, of all steps so far
        self.step_ms: list[float] = []

    def _exchanging(self, optimizer: torch.optim.Optimizer, scheme: str | None) -> Any:
        """The optimizer, wrapped for exchanges with the other ranks."""
        return hvd.DistributedOptimizer(optimizer, named_parameters=self.model.named_parameters(), scheme=scheme)

    def _before(self, step: int) -> None:
        """Called before every step, outside of its time."""

    def _judged(self, losses: Sequence[float]) -> Sequence[float]:
        """The losses that count on this rank for the last steps, from the losses that it had in them."""
        return losses

    def run(self, steps: int, progress: Progress, time_left: TimeLeft) -> None:
        """Trains `steps` more steps."""
        rank = hvd.rank()
        own = []
        for _ in range(steps):
            step = len(self.step_ms)
            batch = self.task.batch(self.seed, step, rank)
            self._before(step)
            start = time.perf_counter()
            self.optimizer.zero_grad()
            loss = self.task.loss(self.model, batch)
            loss.backward()
            self.optimizer.step()
            self.step_ms.append(1e3 * (time.perf_counter() - start))
            own.append(float(loss.detach()))
            time_left.step(self.step_ms[-1])
            progress.update(step, own[-1], self.counters()["moved_bytes"] / (step + 1), self.step_ms[-1])
        name = f"losses.{self.chosen.name}.{len(self.step_ms)}"
        self.losses += hvd.allreduce(torch.tensor(self._judged(own), dtype=torch.float64), op=hvd.Average, name=name).tolist()

    def counters(self) -> dict[str, int]:
        return self.optimizer.counters()

    def validation(self) -> dict[str, float]:
        """The model's figures now; on rank 0, whose model is everybody's."""
        model = self._model()
        return self.task.evaluate(model) if hvd.rank() == 0 else {"bits": 0.0, "accuracy": 0.0}

    def _model(self) -> nn.Module:
        """The model that all ranks share now."""
        self.optimizer.flush()  # a scheduler may have left updates for a next forward
        return self.model

    def _bytes_per_step(self) -> dict[str, float]:
        """Result's figures of bytes."""
        counters = self.counters()
        return {f"{name}_per_step": counters[name] / len(self.step_ms) for name in COUNTED}

    def result(self, steps: int, validation: dict[str, float]) -> Result:
        """Ends the training and returns its result."""
        model, sent = self._model(), self._bytes_per_step()
        self.optimizer.close()
        prints = hvd.allgather_object(fingerprint(model), name=f"fingerprint.{self.chosen.name}")
        return Result(
            name=self.chosen.name,
            label=self.chosen.label,
            optimizer=self.optimizer_words,
            dense=self.chosen.table().get("scheme", {}).get("compressor") == "none",
            steps=steps,
            **validation,
            **sent,
            step_ms=self.step_ms,
            losses=self.losses,
            replicas_equal=len(set(prints)) == 1,
            round_steps=self.chosen.rounds.every if self.chosen.rounds else 1,
        )
