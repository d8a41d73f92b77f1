"""Shared by the families of tools/bench kernels: rows, their data, and the timing of contestants in turn.

A family is NAME.py beside this file with `def rows(world: World) -> Iterator[Row]`, and NAME.cpp with the functions it calls
through `world.door`. Both are found by themselves.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Goal:
    """`numerator` over `denominator`, names of contestants, is to be at most or at least `limit`."""

    numerator: str
    denominator: str
    relation: str = "<="
    limit: float | None = None  # none: shown, not asked for

    def met(self, ratio: float) -> bool:
        return self.limit is None or (ratio <= self.limit if self.relation == "<=" else ratio >= self.limit)


@dataclass
class Row:
    """One kernel against others on equal data. `check` runs first and raises AssertionError if a result is wrong."""

    what: str
    contestants: dict[str, Callable[[], object]]  # "memcpy" of n floats is added, and the floor
    check: Callable[[], None]
    goals: list[Goal] = field(default_factory=list)
    # The floor: a sweep of World.sweeps and its multiple that moves as many bytes; none if memory is no bound.
    floor: tuple[str, float] | None = ("read", 1.0)
    by_the_clock: bool = False  # other threads work too
    repeats: int = 1  # calls in a row, for kernels that take microseconds: their data is in a cache in a training too


class World:
    """Data and the library: everything a family needs to make its rows."""

    def __init__(self, library: str, elements: int) -> None:
        self.door = ctypes.CDLL(library)
        self.n = elements
        self._source = np.ones(elements, np.float32)
        self._target = np.zeros(elements, np.float32)

    def memcpy(self) -> None:
        self.door.bench_memcpy(pointer(self._target), pointer(self._source), ctypes.c_uint64(4 * self.n))

    def sweeps(self) -> dict[str, Callable[[], object]]:
        """Sweeps over memory that do next to nothing else: 4, 8 and 12 bytes per float."""
        n = ctypes.c_uint64(self.n)
        return {
            "read": lambda: self.door.bench_read(pointer(self._source), n),
            "memcpy": self.memcpy,
            "update": lambda: self.door.bench_update(pointer(self._target), pointer(self._source), n),
        }

    def heavy_tailed(self, seed: int = 1, elements: int | None = None) -> np.ndarray:
        """Normal times exp(normal), as gradients look."""
        random = np.random.default_rng(seed)
        shape = self.n if elements is None else elements
        return (random.standard_normal(shape, dtype=np.float32) * np.exp(random.standard_normal(shape, dtype=np.float32))).astype(np.float32)


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    """The array's address, for a call of the door. It keeps the array alive: a row may hold on to it alone."""
    return array.ctypes.data_as(ctypes.c_void_p)


def aligned(count: int, dtype: Any = np.uint8) -> np.ndarray:
    """`count` zeros that begin at a multiple of 64 bytes."""
    raw = np.zeros(count * np.dtype(dtype).itemsize + 64, np.uint8)
    offset = -raw.ctypes.data % 64
    return raw[offset : offset + count * np.dtype(dtype).itemsize].view(dtype)


def spread(values: list[float]) -> list[float]:
    return [float(f"{v:.4g}") for v in (statistics.median(values), min(values), max(values))]


def run(row: Row, world: World, rounds: int) -> dict[str, Any]:
    """Checks, then times all contestants in turn; the first round warms up. Ratios are taken round by round.

    All run in this thread, and its processor time counts, so other processes disturb less. Rows with `by_the_clock` are timed
    by the clock.
    """
    row.check()
    now = time.perf_counter if row.by_the_clock else time.thread_time
    sweeps = world.sweeps()
    baselines = ["memcpy"] + ([row.floor[0]] if row.floor else [])
    contestants = {name: sweeps[name] for name in baselines} | row.contestants
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, contestant in contestants.items():
            repeats = row.repeats if name in row.contestants else 1
            start = now()
            for _ in range(repeats):
                contestant()
            if number > 0:
                times[name].append((now() - start) / repeats)
    ratios = []
    for goal in row.goals:
        ratio = spread([a / b for a, b in zip(times[goal.numerator], times[goal.denominator])])
        ratios.append({"ratio": f"{goal.numerator} / {goal.denominator}", "value": ratio, "met": goal.met(ratio[0]),
                       "goal": "" if goal.limit is None else f"{goal.relation} {goal.limit:g}"})
    if row.floor:
        sweep, share = row.floor
        above = spread([a / (share * b) for a, b in zip(times["ours"], times[sweep])])
        ratios.append({"ratio": "ours / floor", "value": above, "met": True, "goal": f"floor: {share:.3g} x {sweep}"})
    return {"what": row.what, "ms": {name: spread([1e3 * t for t in series]) for name, series in times.items()}, "ratios": ratios}


def families() -> Iterator[tuple[str, Callable[[World], Iterator[Row]]]]:
    import importlib
    import pkgutil

    import benches.kernels as package

    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda m: m.name):
        if module.name not in ("rows", "__main__"):
            yield module.name, importlib.import_module(f"benches.kernels.{module.name}").rows
