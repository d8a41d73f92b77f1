"""Figures that were measured on some machine, and stand on more than one page.

They change with every bench, so `tools/test --all` runs these tests as a step that only warns. No test of the gate may
compare a measured figure.
"""

from __future__ import annotations

import re

from numbers_test import ROOT, rows_of, text_of


def test_the_steps_that_predictions_are_compared_with_are_those_of_the_measurements():
    measurements = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text_of("docs/performance.md"))]
    section = text_of("docs/plan.md").split("## Against measured steps")[1].split("\n## ")[0]
    rows = rows_of(section, "compressor") + rows_of(section, "scheduler")
    assert len(rows) >= 30
    for row in rows:
        measured = float(row[-2])
        assert any(abs(number - measured) <= 0.5 for number in measurements), f"{row}: {measured:.0f} ms is not in docs/performance.md"


def test_the_readme_shows_the_time_to_a_loss_and_no_other_page_repeats_it():
    (row,) = [line for line in text_of("README.md").splitlines() if line.startswith("| sign-sgd majority |")]
    assert re.search(r"\d+\.\d s", row)
    assert all(row not in page.read_text(encoding="utf-8") for page in ROOT.glob("docs/**/*.md"))
