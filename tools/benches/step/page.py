"""The tables of docs/results.md, between two marks, from the cells that docs/results/step.json keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hosts import rate_words

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = REPOSITORY / "docs/results.md"
KEPT = REPOSITORY / "docs/results/step.json"
BEGIN, END = "<!-- step: begin, written by tools/bench step --page -->", "<!-- step: end -->"
Table = Callable[[Mapping[str, Any], str], Sequence[Sequence[str]]]


def markdown(cells: Sequence[Mapping[str, Any]], table: Table) -> str:
    lines = []
    for cell in cells:
        heading, *rows = table(cell["figures"], next(iter(cell["figures"])))
        lines += [f"### {cell['model']}, {cell['ranks']} hosts, {rate_words(cell['link'])}", ""]
        lines += [f"Measured on {cell['date']}, {cell['rounds']} rounds.", ""]
        lines += [f"| {' | '.join(heading)} |", f"|---|{'--:|' * (len(heading) - 1)}"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def between(page: str, text: str) -> str:
    """The page with this text between the marks. Errors: SystemExit where it has none."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise SystemExit(f"bench step: {PAGE} does not have the lines {BEGIN!r} and {END!r} once each, in this order")
    before, after = page[: page.index(BEGIN) + len(BEGIN)], page[page.index(END) :]
    return f"{before}\n\n{text}\n{after}"


def write(cells: Sequence[Mapping[str, Any]], table: Table) -> None:
    if not cells:
        raise SystemExit(f"bench step: {KEPT} has no cells; measure some with --keep {KEPT.relative_to(REPOSITORY)}")
    PAGE.write_text(between(PAGE.read_text(encoding="utf-8"), markdown(cells, table)), encoding="utf-8")
