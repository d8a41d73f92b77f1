"""Plans of the built schedulers, for comparison with oracles: models as plain values, and one process that makes
plans.

    probe = PlannerProbe()                                   # or the fixture `probe`
    plan = probe.plan("fgbuff", Model([dense("a", 25, ready_us=10.0)], links=[Link(50.0, 0.5)], flags=MEASURED))
    plan.gradients()                                         # of phase 0: [[0]]

The fields and defaults are those of planning::ModelEntries. Times are microseconds. A negative, infinite or NaN time
counts as unmeasured.
"""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).resolve().parents[2] / "build" / "release" / "tests" / "plan_probe"

FORWARD_WAITS, GIVEN_BUCKETS, MEASURED = 1, 2, 4  # PENSTOCK_MODEL_*
SUM, GATHER = 1, 2  # PENSTOCK_COMBINE_*
FLAT, SPLIT, HIERARCHICAL, SHARD = 1, 2, 3, 4  # PENSTOCK_ROUTE_*
READY, SET_COMPLETE, NEXT_FORWARD = 1, 2, 3  # PENSTOCK_LAUNCH_*
NO_BUCKET = 0xFFFFFFFF


@dataclasses.dataclass
class Candidate:
    """The costs of a gradient with one compressor."""

    phase_bytes: list[int]  # one number for each phase of the period
    compressor: str = "none"
    encode_fixed_us: float = -1.0
    encode_per_element_us: float = -1.0
    decode_fixed_us: float = -1.0
    decode_per_element_us: float = -1.0
    part_alignment: int = 1
    combine: int = SUM
    n_rounds: int = 1


@dataclasses.dataclass
class Gradient:
    """The first candidate is the configured choice."""

    name: str
    shape: list[int]
    bytes: int  # uncompressed
    candidates: list[Candidate]
    ready_us: float = -1.0
    forward_us: float = -1.0
    dtype: int = 1  # PENSTOCK_FLOAT32
    given_bucket: int = NO_BUCKET

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


@dataclasses.dataclass
class Link:
    alpha_us: float = 0.0
    beta_us_per_byte: float = 0.0
    level: int = 1  # PENSTOCK_LEVEL_WORLD


@dataclasses.dataclass
class Model:
    """An empty order is the reverse of the list of gradients."""

    gradients: list[Gradient]
    order: list[int] = dataclasses.field(default_factory=list)
    links: list[Link] = dataclasses.field(default_factory=list)
    backward_us: float = 0.0
    forward_us: float = 0.0
    world: int = 1
    hosts: int = 1
    ranks_per_host: int = 1
    period: int = 1
    route: int = 0
    flags: int = 0


def dense(name: str, numel: int, ready_us: float = -1.0) -> Gradient:
    """A float32 gradient of one dimension that is sent uncompressed."""
    return Gradient(name, [numel], 4 * numel, [Candidate([4 * numel])], ready_us)


@dataclasses.dataclass(frozen=True)
class Bucket:
    phase: int
    route: int
    launch: int
    gradients: list[int]
    ranges: list[tuple[int, int]]  # first element and number of elements, for each gradient
    choices: list[int]  # an index into the gradient's candidates, for each gradient


@dataclasses.dataclass(frozen=True)
class Plan:
    buckets: list[Bucket]
    messages: list[list[int]]
    explanation: list[str]
    exposed_us: float  # the forecast of planning::timeline, not of an oracle
    decisions: list[int]  # one for each measurement that was given: 1 for a new plan

    def of_phase(self, phase: int = 0) -> list[Bucket]:
        return [bucket for bucket in self.buckets if bucket.phase == phase]

    def gradients(self, phase: int = 0) -> list[list[int]]:
        return [bucket.gradients for bucket in self.of_phase(phase)]

    def choices(self, phase: int = 0) -> list[list[int]]:
        return [bucket.choices for bucket in self.of_phase(phase)]


class Refused(Exception):
    """A scheduler refused a model, or the probe could not read the question."""


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value


def _fields(value: Any) -> dict[str, Any]:
    return {name: _plain(field) for name, field in vars(value).items()}


class PlannerProbe:
    """A running plan_probe. Not to be shared between threads; close() or a with-statement ends it."""

    def __init__(self, program: Path = PROGRAM) -> None:
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def plan(self, scheduler: str, model: Model, measurements: list[dict[str, float]] | None = None,
             **options: bool | int | float | str) -> Plan:
        """The plan of a fresh instance of the scheduler. Raises Refused with the reason."""
        question: dict[str, Any] = {"scheduler": scheduler, "options": options, "model": model}
        if measurements is not None:
            question["measurements"] = [{name: _plain(value) for name, value in m.items()} for m in measurements]
        answer = self._ask(json.dumps(question, default=_fields, allow_nan=False))
        if "error" in answer:
            raise Refused(answer["error"])
        buckets = [
            Bucket(b["phase"], b["route"], b["launch"], [p[0] for p in b["pieces"]],
                   [(p[1], p[2]) for p in b["pieces"]], [p[3] for p in b["pieces"]])
            for b in answer["buckets"]
        ]
        return Plan(buckets, answer["messages"], answer["explanation"], answer["exposed_us"],
                    answer.get("decisions", []))

    def _ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"plan_probe ended with {self._process.wait()} at the question {line[:2000]}")
        return json.loads(answer)

    def close(self) -> None:
        self._process.communicate(timeout=10)

    def __enter__(self) -> PlannerProbe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
