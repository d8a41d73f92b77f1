"""The contestants of tools/bench local, and the training that a contestant runs."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quickstart_job import toml_text

if TYPE_CHECKING:
    import torch

CONF = Path(__file__).resolve().parents[2] / "conf"
DENSE = "s-sgd"  # gradients of every step: the others are measured against it
DILOCO = "diloco"  # drifts in float32: compressed drifts are measured against it
WARM_UP = 0.03  # of the steps
LOWEST = 0.1  # the last rate over the highest


@dataclass(frozen=True)
class Outer:
    """The arguments of hvd.OuterStep."""

    lr: float
    momentum: float


@dataclass(frozen=True)
class Contestant:
    """A file of conf/, and the arguments of LocalSteps (docs/guide/far-apart.md)."""

    name: str
    file: str = ""  # of conf/; like the contestant, if empty
    rate: float = 3e-3  # the highest rate of AdamW, equal for all; `--rates` searches better ones
    apart: bool = True  # False: DistributedOptimizer
    outer: Outer | None = None
    fragments: int = 1
    delay: int = 0
    mix: float = 0.0

    def scheme(self) -> str:
        """The TOML text of the scheme, without comments."""
        table = toml_text.load(CONF / f"{self.file or self.name}.toml")
        return toml_text.dump({key: value for key, value in table.items() if key != "runtime"})

    def wrap(self, optimizer: torch.optim.Optimizer, named: Iterable[tuple[str, torch.Tensor]], every: int) -> Any:
        """The optimizer that exchanges gradients or drifts. Collective."""
        import penstock.torch as hvd

        if not self.apart:
            return hvd.DistributedOptimizer(optimizer, named_parameters=named, scheme=self.scheme())
        outer = None if self.outer is None else hvd.OuterStep(**asdict(self.outer))
        return hvd.LocalSteps(
            optimizer, every=every, outer=outer, scheme=self.scheme(), fragments=self.fragments, delay=self.delay,
            mix=self.mix, named_parameters=named,
        )  # fmt: skip

    def words(self, every: int) -> str:
        """The exchange in the words of tables."""
        if not self.apart:
            return "gradients, every step"
        outer = "mean" if self.outer is None else f"OuterStep({self.outer.lr:g}, {self.outer.momentum:g})"
        parts = f", {self.fragments} fragments, delay {self.delay}, mix {self.mix:g}" if self.fragments > 1 else ""
        return f"drift, H = {every}, {outer}{parts}"


DILOCO_STEP = Outer(0.7, 0.9)
_CONTESTANTS = (
    Contestant(DENSE, apart=False),
    Contestant(DILOCO, outer=DILOCO_STEP),
    Contestant("local-sgd", file=DILOCO),  # the same drift, and the mean as the outer step
    Contestant("sparseloco"),
    Contestant("streaming-diloco", outer=DILOCO_STEP, fragments=3, delay=5, mix=0.5),
)
NAMES = tuple(one.name for one in _CONTESTANTS)


def contestant(name: str) -> Contestant:
    """The contestant of that name. ValueError if there is none."""
    for one in _CONTESTANTS:
        if one.name == name:
            return one
    raise ValueError(f"--schemes names {name!r}, expected some of {', '.join(NAMES)}")


@dataclass(frozen=True)
class Job:
    """A training from its beginning to its last step."""

    name: str
    rate: float
    steps: int
    ranks: int
    seed: int
    every: int
    task: str = "text"

    def rate_at(self, step: int) -> float:
        """The rate of AdamW in step 0, 1, ...: rises for 3 % of the steps, then falls along a cosine to a tenth."""
        rising = max(1, round(WARM_UP * self.steps))
        if step < rising:
            return self.rate * (step + 1) / rising
        share = (step - rising) / max(1, self.steps - rising)
        return self.rate * (LOWEST + (1 - LOWEST) * 0.5 * (1 + math.cos(math.pi * share)))

    def folder(self, root: Path) -> Path:
        """Where the state of this training lies: another setting has another folder."""
        setting = asdict(replace(contestant(self.name), rate=self.rate))
        own = asdict(self) if contestant(self.name).apart else asdict(self) | {"every": None}  # it has no rounds
        facts = json.dumps([own, setting, contestant(self.name).scheme()], sort_keys=True)
        return root / f"{self.name}-{hashlib.sha256(facts.encode()).hexdigest()[:10]}"


def state_of(folder: Path) -> dict[str, Any]:
    """What a training has left in its folder: `step` up to which it is saved, its curve, and `final` where it has ended."""
    file = folder / "state.json"
    return json.loads(file.read_text()) if file.exists() else {"step": 0, "curve": [], "payload_bytes": 0}
