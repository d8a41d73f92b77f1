"""What the stages of a step cost: one gradient of 4096 x 4096 floats on one rank, in units of sweeps over as many floats.

Compensate and encode are taken together, since one sweep may do both. What is a fresh fit in some steps and a kept threshold in
others is two lines.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quickstart_job import toml_text
from quickstart_job.recipes import CONF

Runner = Callable[[list[str]], dict[str, Any]]


@dataclass(frozen=True)
class Scheme:
    """A file of conf/ without its rules and switches."""

    what: str
    file: str
    changes: dict[str, Any] = field(default_factory=dict)
    goal: float | None = None  # compensate and encode, at most so many memcpy
    beside: str = ""  # another scheme, which this one may take 1.2 times as long as

    def table(self) -> toml_text.Table:
        table = {key: value for key, value in toml_text.load(CONF / self.file).items() if key not in ("rule", "switch", "phase", "scheduler")}
        return toml_text.replaced(table, self.changes)


# Half of what is not sent is forgotten: otherwise the first thousand steps each differ from the one before, and no threshold keeps.
STEADY = {"memory.residual.beta": 0.5}


def _threshold(name: str, file: str) -> list[Scheme]:
    key = f"compressor.{toml_text.load(CONF / file)['scheme']['compressor']}.reuse_period"
    return [
        Scheme(f"{name}, fresh statistics", file, {key: 1, **STEADY}, 1.4),
        Scheme(f"{name}, kept threshold", file, {key: 1000, **STEADY}, 1.1),
    ]


EQUALLY_DENSE = "top-k 1.56 % with residual"
MOST_BESIDE = 1.2

SCHEMES = [
    Scheme("top-k 0.1 % with residual", "topk-residual.toml", {"compressor.topk.density": 0.001, **STEADY}, 1.0),
    Scheme("dgc 0.1 %", "dgc.toml", {}, 1.8),
    *_threshold("gaussian-k 0.1 %", "gaussian-k.toml"),
    *_threshold("redsync 0.1 %", "redsync.toml"),
    *_threshold("sidco 0.1 %", "sidco.toml"),
    Scheme("adtopk", "adtopk.toml", {"scheme.scheduler": "fusion", "scheme.candidates": ["adtopk"]}),
    Scheme(EQUALLY_DENSE, "topk-residual.toml", {"compressor.topk.density": 64 / 4096, "memory.residual.beta": 0.95}),
    Scheme("blocktopk, 64 of 4096", "sparseloco.toml", {"compressor.blocktopk.value_type": "fp16"}, beside=EQUALLY_DENSE),
    Scheme("sparseloco's exchange", "sparseloco.toml", {}, beside=EQUALLY_DENSE),
    Scheme("ef-sign with residual", "ef-sign.toml", {}, 1.3),
    Scheme("one-bit", "one-bit.toml"),
    Scheme("sign-sgd, majority vote", "sign-sgd-majority.toml"),
    Scheme("qsgd", "qsgd.toml"),
    Scheme("terngrad", "terngrad.toml"),
    Scheme("power-sgd rank 4", "power-sgd.toml", {"compressor.powersgd.rank": 4}),
    Scheme("acp-sgd rank 4", "acp-sgd.toml", {"compressor.acpsgd.rank": 4}),
]


def plugins() -> list[str]:
    """Build targets of all plugins that the schemes name."""
    schemes = [scheme.table()["scheme"] for scheme in SCHEMES]
    kinds = ("compressor", "memory", "scheduler")
    return sorted({f"penstock-{kind}-{scheme[kind]}" for scheme in schemes for kind in kinds if kind in scheme})


def _stages(trace: Path) -> dict[str, list[float]]:
    """Milliseconds of each stage, step by step."""
    spans = json.loads(trace.read_text())
    spans = spans["traceEvents"] if isinstance(spans, dict) else spans
    steps: dict[tuple[str, int], float] = {}
    for span in spans:
        if span.get("ph") == "X":
            key = span["name"], span["args"]["step"]
            steps[key] = steps.get(key, 0.0) + span["dur"] / 1e3
    stages: dict[str, list[float]] = {}
    for (stage, _), duration in sorted(steps.items()):
        stages.setdefault(stage, []).append(duration)
    return stages


def measure(program: list[str], steps: int, run: Runner) -> dict[str, Any]:
    """Sweeps and stages of every scheme, in milliseconds."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for scheme in SCHEMES:
            config, trace = Path(folder) / "scheme.toml", Path(folder) / "trace.json"
            config.write_text(toml_text.dump(scheme.table()))
            figures[scheme.what] = run([*program, str(config), str(trace), str(steps)])
            figures[scheme.what]["stages_ms"] = _stages(trace)
            trace.unlink()
    return figures


def _encode(found: dict[str, Any]) -> list[float]:
    """Milliseconds of compensate and encode, step by step."""
    stages, nothing = found["stages_ms"], [0.0] * len(found["memcpy_ms"])
    return [a + b for a, b in zip(stages.get("compensate", nothing), stages.get("encode", nothing))]


def _beside(figures: dict[str, Any], scheme: Scheme, spread: Callable[..., str]) -> tuple[str, str, str]:
    """The row of a scheme beside another: ratios of steps of equal number, each in memcpy of its own run."""
    own, other = ([value / statistics.median(found["memcpy_ms"]) for value in _encode(found)]
                  for found in (figures[scheme.what], figures[scheme.beside]))  # fmt: skip
    ratios = [a / b for a, b in zip(own, other)]
    median = statistics.median(ratios)
    goal = f"<= {MOST_BESIDE:g}{' (missed)' if median > MOST_BESIDE else ''}"
    return f"{scheme.what}: compensate and encode / {scheme.beside}", spread([median, min(ratios), max(ratios)], " x"), goal


def table(figures: dict[str, Any], spread: Callable[..., str]) -> list[tuple[str, str, str]]:
    rows = []
    for scheme in SCHEMES:
        found = figures[scheme.what]
        stages, base = found["stages_ms"], statistics.median(found["memcpy_ms"])
        nothing = [0.0] * len(found["memcpy_ms"])
        encode = _encode(found)
        for what, series, goal in (("compensate and encode", encode, scheme.goal), ("decode", stages.get("decode", nothing), None)):
            ratios = [value / base for value in series]
            three = [statistics.median(ratios), min(ratios), max(ratios)]
            missed = goal is not None and three[0] > goal
            rows.append((f"{scheme.what}: {what} / memcpy", spread(three, " x"), "" if goal is None else f"<= {goal:g}{' (missed)' if missed else ''}"))
        if scheme.beside:
            rows.append(_beside(figures, scheme, spread))
    return rows
