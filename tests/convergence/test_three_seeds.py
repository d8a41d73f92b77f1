"""Values in 16 bits, and signs with means, train as float32 values do: means over three seeds, at full length on text.

The runs take many minutes, so only tools/nightly makes them. docs/convergence.md has the same comparison.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from long_runs import IS_LONG

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from benches import convergence  # noqa: E402

SEEDS = (1, 2, 3)
FULL, HALVES, SIGNS = "topk-residual-fp32", "topk-residual", "top-k-signs"
SETTING = convergence.Setting("text", convergence.STEPS["text"])

pytestmark = pytest.mark.skipif(not IS_LONG, reason="nine runs of 200 steps take many minutes; TEST_LONG=1 makes them")


@pytest.fixture(scope="module")
def compared() -> dict[str, convergence.Comparison]:
    names = [FULL, HALVES, SIGNS]
    return dict(zip(names, convergence.compare(names, SETTING, SEEDS), strict=True))


@pytest.mark.parametrize("name", [FULL, HALVES, SIGNS])
def test_over_three_seeds_the_runtime_trains_like_the_simulation(name: str, compared: dict[str, convergence.Comparison]) -> None:
    found = compared[name]
    assert found.seeds == len(SEEDS)
    ends = f"{found.real_bits:.4f} and {found.simulated_bits:.4f}"
    assert found.agrees, f"{found.verdict}: {ends}, first losses differ by {found.first_gap:.1e}"


@pytest.mark.parametrize("name", [HALVES, SIGNS])
def test_over_three_seeds_narrow_values_end_where_float32_ends(name: str, compared: dict[str, convergence.Comparison]) -> None:
    full, narrow = compared[FULL], compared[name]
    allowed = max(full.spread, narrow.spread, convergence.FINAL_TOLERANCE)
    assert narrow.real_bits <= full.real_bits + allowed, f"{narrow.real_bits:.4f}, and {full.real_bits:.4f} with float32"
    assert narrow.payload_bytes < full.payload_bytes
