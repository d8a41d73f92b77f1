"""The cells that `tools/bench step` measures: the cells of the command's options, or with --results all cells of docs/results.md."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benches.step import contestants

RESULTS = Path(__file__).resolve().parents[3] / "docs/results"
SLOW, FAST = "100mbit", "1gbit"


@dataclass(frozen=True)
class Cell:
    """Contestants that take turns on one model, link and number of ranks; `together` contestants at a time beside the reference.
    The figures are kept in `file`, if there is one."""

    model: str
    link: str
    ranks: int
    backward_ms: float
    contestants: tuple[str, ...]
    rounds: int
    together: int
    file: Path | None = None


# These schemes are not measured, because they differ from others only in switches, density, small gradients, ranks of a host
# or name.
SAME = ("s-sgd", "fusion", "diloco", "streaming-diloco", "one-step-late", "dgc-hierarchical", "dgc-geometric-warmup", "dgc-steady")
EVERY = tuple(dict.fromkeys([*contestants.DEFAULT, *sorted({path.stem for path in contestants.CONF.glob("*.toml")} - {*SAME, "auto"})]))
CHOICE = ("dense", "topk-residual", "ef-sign", "auto")  # `auto` beside the schemes from which it may choose
WITHOUT_HOOKS = tuple(name for name in contestants.DEFAULT if not name.startswith("ddp-"))
# For BERT, whose dense step takes a minute at 100 Mb/s.
LARGE = ("ddp", "ddp-powersgd", "power-sgd", "acp-sgd", "topk-residual", "grace-style", "dense", "dgc")
# The number of contestants that can live side by side; large models leave memory for fewer.
TOGETHER = {"resnet50": 6, "bert-base": 3}
# By model, links, ranks, length of backward and rounds.
PLAN: tuple[tuple[str, tuple[str, ...], int, float, tuple[str, ...], dict[str, int]], ...] = (
    ("resnet50", (FAST, SLOW), 4, 0.0, CHOICE, {FAST: 15, SLOW: 5}),
    ("resnet50", (FAST, SLOW), 4, 0.0, (*contestants.DEFAULT, contestants.HOROVOD_ITSELF), {FAST: 5, SLOW: 2}),
    ("resnet50", (FAST, SLOW), 4, 150.0, WITHOUT_HOOKS, {FAST: 5, SLOW: 2}),
    ("resnet50", (FAST, SLOW), 2, 0.0, contestants.DEFAULT, {FAST: 5, SLOW: 2}),
    ("bert-base", (FAST, SLOW), 4, 0.0, LARGE, {FAST: 5, SLOW: 2}),
    ("bert-base", (FAST, SLOW), 2, 0.0, LARGE, {FAST: 5, SLOW: 2}),
    ("resnet50", (FAST, SLOW), 4, 0.0, EVERY, {FAST: 5, SLOW: 2}),
)


def of_results() -> list[Cell]:
    """All of docs/results.md. A contestant that stands in two cells of one table is measured in the first."""
    return [
        Cell(model, link, ranks, backward_ms, names, rounds[link], TOGETHER[model], RESULTS / f"{model}.jsonl")
        for model, links, ranks, backward_ms, names, rounds in PLAN
        for link in links
    ]


def among(cells: Iterable[Cell], models: Sequence[str] | None, links: Sequence[str] | None, sizes: Sequence[int] | None) -> list[Cell]:
    """Those of these models, links and numbers of ranks; None for any."""
    return [
        cell for cell in cells
        if (models is None or cell.model in models) and (links is None or cell.link in links) and (sizes is None or cell.ranks in sizes)
    ]  # fmt: skip


def product(models: Sequence[str], links: Sequence[str], sizes: Sequence[int], backward_ms: float, names: Sequence[str], rounds: int, together: int, file: Path | None) -> list[Cell]:
    """Every model over every link by every number of ranks."""
    return [Cell(model, link, size, backward_ms, tuple(names), rounds, together, file) for model, link, size in itertools.product(models, links, sizes)]
