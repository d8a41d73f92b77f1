"""What the table of convergence says of a pair of runs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benches import convergence  # noqa: E402
from quickstart_job.recipes import KNOWN, recipe  # noqa: E402

GOOD = convergence.Comparison(
    name="topk-residual",
    label="top-k 1 %",
    setting="as published",
    optimizer="AdamW 0.003",
    payload_bytes=100.0,
    first_gap=0.0,
    real_bits=3.41,
    first_seed_bits=3.4,
    simulated_bits=3.4,
    first_seed_simulated_bits=3.4,
    searched_bits=3.4,
    seeds=3,
    spread=0.05,
    trains=True,
)


def test_runs_that_end_within_the_spread_agree() -> None:
    assert GOOD.verdict == "agrees"
    assert replace(GOOD, real_bits=3.46).verdict == "**differs**"
    assert replace(GOOD, first_gap=0.01).verdict == "**differs**"


def test_a_row_of_one_seed_is_compared_with_that_seed_of_dense() -> None:
    dense = replace(GOOD, real_bits=3.2, first_seed_bits=3.0)
    assert convergence.gap_to(dense, GOOD) == pytest.approx(0.21)
    assert convergence.gap_to(dense, replace(GOOD, seeds=1, real_bits=3.4)) == pytest.approx(0.4)


def test_a_row_of_one_seed_has_no_spread_of_its_own() -> None:
    text = convergence.markdown([GOOD, replace(GOOD, label="alone", seeds=1)], convergence.Setting("digits", 80), "command")
    rows = {line.split(" | ")[0]: line.split(" | ")[8] for line in text.splitlines() if line.startswith("| ")}
    assert rows["| top-k 1 %"] == "0.0500" and rows["| alone"] == "one seed"


def test_a_row_that_the_search_for_its_rate_found_elsewhere_is_named() -> None:
    setting = convergence.Setting("digits", 80)
    assert "tuned.toml" not in convergence.markdown([GOOD, replace(GOOD, searched_bits=None)], setting, "command")
    text = convergence.markdown([GOOD, replace(GOOD, label="other", searched_bits=3.55)], setting, "command")
    assert "other 3.4000 (3.5500). All other losses are equal." in " ".join(text.split())
    assert convergence.searched_bits(recipe("dgc"), setting, 1) == 0.7264
    assert convergence.searched_bits(recipe("dgc"), setting, 2) is None  # searched with the first seed


def test_two_runs_that_stay_at_chance_do_not_agree() -> None:
    assert replace(GOOD, trains=False).verdict == "**does not train**"


def test_every_scheme_has_a_row_of_its_own() -> None:
    rows = {(recipe(name).label, recipe(name).setting) for name in KNOWN}
    assert len(rows) == len(KNOWN)
