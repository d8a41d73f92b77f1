"""What the README shows of the race: ResNet-50 on four ranks without compute, as a picture and as rows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from hosts import rate_words

from benches.step.contestants import HOROVOD_ITSELF, is_ours
from benches.step.table import Record, groups, times_as_fast

BEGIN, END = "<!-- headlines: tools/bench step --page writes what follows -->", "<!-- end of headlines -->"
CELL = ("resnet50", 4, 0.0)  # model, ranks, backward_ms: the hardest case
WORDS = {
    "ddp": "DDP over gloo", "ddp-fp16": "DDP, `fp16_compress_hook`", "ddp-powersgd": "DDP, `powerSGD_hook`, rank 4", "grace-style": "GRACE-style top-k 1 %",
    "dense": "dense", "power-sgd": "Power-SGD, rank 4", "acp-sgd": "ACP-SGD, rank 4", "topk-residual": "top-k 1 % with residual", "dgc": "DGC 0.1 %, without its warm-up",
    "ef-sign": "EF-signSGD", "ok-topk": "Ok-Topk 1 %", HOROVOD_ITSELF: "Horovod 0.28.1",
}  # fmt: skip
OURS, THEIRS = "#1f6fb2", "#9a9a9a"


def by_link(records: Sequence[Record]) -> dict[str, dict[str, Record]]:
    """The last record of each contestant that has words, by link, the slowest link first; the fastest contestant first."""
    found = {group[1]: rows for group, rows in groups(records).items() if (group[0], group[2], group[3]) == CELL}
    slowest = sorted(found, key=lambda link: -statistics.median(found[link][0]["reference_ms"]))
    return {link: {record["contestant"]: record for record in found[link] if record["contestant"] in WORDS} for link in slowest}


def ratio(record: Record) -> float:
    return statistics.median(times_as_fast(record))


def markdown(records: Sequence[Record]) -> str:
    """A row for each contestant that ran over all links: its step and how many times as fast as DDP it was."""
    links = by_link(records)
    first = next(iter(links.values()))
    head = [f"{rate_words(link)}: step, times DDP" for link in links]
    lines = [f"| | {' | '.join(head)} |", "|---|" + "---|" * len(links)]
    for name in first:
        if all(name in rows for rows in links.values()):
            cells = [f"{statistics.median(rows[name]['step_ms']):.0f} ms, {ratio(rows[name]):.3g}" for rows in links.values()]
            lines.append(f"| {WORDS.get(name, name)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(records: Sequence[Record], path: Path) -> None:
    """A bar for each contestant, how many times as fast as DDP; a panel for each link."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    links = by_link(records)
    figure, panels = pyplot.subplots(1, len(links), figsize=(6.5 * len(links), 4.2), layout="constrained", squeeze=False)
    for axes, (link, rows) in zip(panels[0], links.items(), strict=True):
        names = list(reversed(rows))
        ratios = [ratio(rows[name]) for name in names]
        colours = [OURS if is_ours(name) else THEIRS for name in names]
        bars = axes.barh([WORDS.get(name, name).replace("`", "") for name in names], ratios, color=colours)
        axes.bar_label(bars, [f"{one:.3g} ×" for one in ratios], padding=3)
        axes.set_xscale("log")
        axes.set_xlim(right=3 * max(ratios))
        axes.axvline(1.0, color="black", linewidth=0.8)
        axes.set_title(f"{rate_words(link)} between hosts")
        axes.set_xlabel("times as fast as DistributedDataParallel, a step")
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("Exchange of ResNet-50's gradients, four ranks, no compute; blue: Penstock", fontsize=11)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
