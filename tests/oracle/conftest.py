"""Shared by the oracles of planners: one process that asks the built schedulers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .planner_probe import PROGRAM, PlannerProbe


@pytest.fixture(scope="session")
def probe() -> Iterator[PlannerProbe]:
    if not PROGRAM.exists():
        pytest.fail(f"{PROGRAM.name} is not built; build it: ninja -C build/release plan_probe")
    with PlannerProbe() as running:
        yield running
