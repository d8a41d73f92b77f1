"""Every compressor on route hierarchical: its gradients are cut where the oracle cuts them, and drawn numbers belong to
the elements of the whole gradient. On two hosts of two ranks, which are threads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).resolve().parent
for room in (HERE, HERE.parent, HERE.parent / "convergence", HERE.parents[1] / "tools"):
    sys.path.insert(0, str(room))

from cases import Case  # noqa: E402
from oracle.method import Item  # noqa: E402
from oracle.schemes import make_scheme  # noqa: E402
from ranks_in_threads import RanksInThreads  # noqa: E402
from test_product import CASES, NOT_SIMULATED, tolerance_of  # noqa: E402

HOSTS = (0, 0, 1, 1)
STEPS = 2
ITEMS = [Item("table", 0, (300, 33)), Item("line", 1, (8200,)), Item("wide", 2, (3, 4096)), Item("kernel", 3, (8, 3, 5, 5))]

# The oracle simulates these on route flat alone.
FLAT = {"blocktopk", "demo"}


def is_simulated(case: Case) -> bool:
    is_flat = case.compressor in FLAT or case.is_composite or case.options.get("scope") == "bucket"
    return not is_flat and case.name not in NOT_SIMULATED


CUT = [case for case in CASES if is_simulated(case)]


def gradients(step: int) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(2000 + step)

    def drawn(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * torch.randn(shape, generator=generator).exp()

    return [{item.name: drawn(item.shape) for item in ITEMS} for _ in HOSTS]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CUT])
def test_a_compressor_is_cut_among_the_ranks_of_a_host_as_the_oracle_says(case: Case) -> None:
    table = case.table("loopback")
    table["scheme"]["route"] = "hierarchical"
    oracle = make_scheme(table, ITEMS, len(HOSTS), hosts=HOSTS)
    with RanksInThreads(table, ITEMS, HOSTS) as real:
        for step in range(STEPS):
            found, expected = real.step(gradients(step)), oracle.step(gradients(step))
            for item in ITEMS:
                gap = float((found[item.name] - expected[item.name]).abs().max())
                largest = float(expected[item.name].abs().max())
                assert gap <= tolerance_of(case) * largest, f"'{item.name}' of step {step} differs by {gap:.1e} of {largest:.1e}"
