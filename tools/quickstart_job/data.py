"""The two tasks of the job: which samples rank r sees at step t is a pure function of (seed, t, r)."""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
import subprocess
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from .model import CharacterTransformer, DigitsNet, initialise

Batch = tuple[torch.Tensor, torch.Tensor]

REPOSITORY = Path(__file__).resolve().parents[2]
TEXT_BYTES = 4_404_412
TEXT_SHA256 = "cd45f0c9cedab8e4439bd6486c8952c77cc8b0ecc5d1f6ae3513f2039f47229d"


class DataError(RuntimeError):
    """The data is not available; the message has the remedy."""


def generator_for(seed: int, step: int, rank: int) -> np.random.Generator:
    """Random numbers of one rank in one step, equal for every caller."""
    return np.random.default_rng([seed, step, rank])


class Task:
    """A model, its data and its validation."""

    name: str
    unit: str  # of the validation loss

    def make_model(self, seed: int) -> nn.Module:
        raise NotImplementedError

    def batch(self, seed: int, step: int, rank: int) -> Batch:
        """Inputs and targets of `rank` at `step`."""
        raise NotImplementedError

    def validation(self) -> Batch:
        """Samples that no batch contains."""
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Mean cross entropy in nats."""
        logits = model(batch[0])
        return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch[1].reshape(-1))

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Validation loss in bits per target and share of targets guessed right."""
        inputs, targets = self.validation()
        nats, right = 0.0, 0
        model.eval()
        with torch.no_grad():
            for x, y in zip(inputs.split(64), targets.split(64)):
                logits = model(x).flatten(0, -2)
                nats += float(functional.cross_entropy(logits, y.reshape(-1), reduction="sum"))
                right += int((logits.argmax(dim=-1) == y.reshape(-1)).sum())
        model.train()
        return {"bits": nats / targets.numel() / math.log(2.0), "accuracy": right / targets.numel()}


def load_text(cache: Path) -> bytes:
    """The King James Bible as Debian's package bible-kjv prints it, read from `cache` where it lies already."""
    if not cache.exists():
        try:
            printed = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise DataError(f"the text could not be printed by `bible`: {error}; install bible-kjv") from error
        cache.parent.mkdir(parents=True, exist_ok=True)
        partial = cache.with_suffix(f".{os.getpid()}.partial")  # several ranks may get here at once
        partial.write_bytes(printed)
        partial.replace(cache)
    text = cache.read_bytes()
    digest = hashlib.sha256(text).hexdigest()
    if len(text) != TEXT_BYTES or digest != TEXT_SHA256:
        raise DataError(
            f"{cache} has {len(text)} bytes and sha256 {digest[:12]}..., expected {TEXT_BYTES} and"
            f" {TEXT_SHA256[:12]}...; remove it and check that bible-kjv-text is installed"
        )
    return text


class TextTask(Task):
    """Next character of the King James Bible: 8 windows of 64 per rank and step, the last 2 % held out."""

    name = "text"
    unit = "bits/char"
    context = 64
    windows = 8
    validation_windows = 512

    def __init__(self, cache: Path = REPOSITORY / "build/data/kjv.txt") -> None:
        text = np.frombuffer(load_text(cache), dtype=np.uint8)
        self.alphabet = np.flatnonzero(np.bincount(text, minlength=256))
        code_of_byte = np.zeros(256, dtype=np.int64)
        code_of_byte[self.alphabet] = np.arange(len(self.alphabet))
        codes = torch.from_numpy(code_of_byte[text])
        held_out = codes.numel() // 50
        self.train, self.tail = codes[:-held_out], codes[-held_out:]

    def make_model(self, seed: int) -> nn.Module:
        return initialise(CharacterTransformer(len(self.alphabet), context=self.context), seed)

    def _windows(self, codes: torch.Tensor, starts: np.ndarray) -> Batch:
        rows = torch.stack([codes[start : start + self.context + 1] for start in starts.tolist()])
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def batch(self, seed: int, step: int, rank: int) -> Batch:
        limit = self.train.numel() - self.context
        return self._windows(self.train, generator_for(seed, step, rank).integers(0, limit, self.windows))

    def validation(self) -> Batch:
        last = self.tail.numel() - self.context - 1
        return self._windows(self.tail, np.linspace(0, last, self.validation_windows).astype(np.int64))


def load_digits() -> np.ndarray:
    """float64[1797, 65]: 64 pixels of 0 to 16 and a label, as scikit-learn's load_digits() reads them. Its file is read
    without it: the import alone takes every rank two seconds."""
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise DataError("the digits are scikit-learn's, which is not installed; run tools/setup")
    path = Path(package.submodule_search_locations[0]) / "datasets/data/digits.csv.gz"
    try:
        rows = np.loadtxt(path, delimiter=",")
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}; install scikit-learn again") from error
    if rows.shape != (1797, 65):
        raise DataError(f"{path} has the shape {rows.shape}, expected (1797, 65); install scikit-learn again")
    return rows


class DigitsTask(Task):
    """scikit-learn's digits, 8 by 8 pixels: 32 images per rank and step, the last 297 of 1797 held out."""

    name = "digits"
    unit = "bits/label"
    images = 32

    def __init__(self) -> None:
        rows = load_digits()
        self.pixels = torch.from_numpy((rows[:, :-1] / 16.0).astype(np.float32))
        self.labels = torch.from_numpy(rows[:, -1].astype(np.int64))

    def make_model(self, seed: int) -> nn.Module:
        return initialise(DigitsNet(), seed)

    def batch(self, seed: int, step: int, rank: int) -> Batch:
        chosen = torch.from_numpy(generator_for(seed, step, rank).integers(0, 1500, self.images))
        return self.pixels[chosen], self.labels[chosen]

    def validation(self) -> Batch:
        return self.pixels[1500:], self.labels[1500:]


def make_task(name: str) -> Task:
    """The task called `name`: text or digits."""
    tasks = {"text": TextTask, "digits": DigitsTask}
    if name not in tasks:
        raise DataError(f"task is {name!r}, expected one of {', '.join(tasks)}")
    return tasks[name]()
