"""What the job shows: progress while it trains; a table, a summary and a picture of the curves at the end."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Result:
    """One scheme's run, as rank 0 tells it."""

    name: str
    label: str
    bits: float  # validation loss in bits per target
    accuracy: float
    payload_bytes_per_step: float  # handed to the transport by this rank
    gradient_bytes_per_step: float  # uncompressed
    step_ms: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)  # mean over ranks, nats
    replicas_equal: bool = True  # all ranks ended with the same bits

    @property
    def median_step_ms(self) -> float:
        return statistics.median(self.step_ms) if self.step_ms else 0.0


class Progress:
    """Live state of one scheme's training on rank 0: a bar on a terminal, now and then a line elsewhere."""

    def __init__(self, label: str, steps: int, unit: str, style: str) -> None:
        self.label, self.steps, self.unit = label, steps, unit
        self.bar: Any = None
        if style == "bar" or (style == "auto" and sys.stderr.isatty()):
            from tqdm import tqdm

            self.bar = tqdm(total=steps, desc=f"{label:<18}", dynamic_ncols=True, unit="step")
        self.shown_every = max(1, steps // 5)
        self.silent = style == "none"

    def update(self, step: int, loss: float, payload_bytes: float | None = None, step_ms: float | None = None) -> None:
        """`payload_bytes` per step so far, `loss` of this rank in nats; a simulation has no bytes and no times."""
        figures = [f"loss {loss:.3f}", f"{loss / math.log(2.0):.3f} {self.unit}"]
        if payload_bytes is not None:
            figures.append(f"{size(payload_bytes)}/step")
        if step_ms is not None:
            figures.append(f"{step_ms:.0f} ms")
        if self.bar is not None:
            self.bar.set_postfix_str(", ".join(figures), refresh=False)
            self.bar.update(1)
        elif not self.silent and ((step + 1) % self.shown_every == 0 or step + 1 == self.steps):
            print(f"{self.label:<18} step {step + 1:>5}/{self.steps}  {'  '.join(figures)}", flush=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def size(count: float) -> str:
    """Bytes for people: 1.69 MB (powers of 1000)."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000.0
    return f"{count:.3g} GB"


def dense_bytes(results: Sequence[Result], result: Result) -> float:
    """What the reduction counts from: s-sgd's bytes where it ran, else the uncompressed gradients."""
    for other in results:
        if other.name == "s-sgd":
            return other.payload_bytes_per_step
    return result.gradient_bytes_per_step


def table(results: Sequence[Result], unit: str) -> str:
    """The comparison, one line per scheme."""
    head = ("scheme", unit, "accuracy", "bytes/rank/step", "reduction", "median step")
    rows = [head]
    for result in results:
        sent = result.payload_bytes_per_step
        ratio = f"{dense_bytes(results, result) / sent:.1f} x" if sent else "-"
        rows.append(
            (
                result.label,
                f"{result.bits:.3f}",
                f"{100.0 * result.accuracy:.1f} %",
                f"{sent:,.0f}",
                ratio,
                f"{result.median_step_ms:.0f} ms",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = []
    for row in rows:
        first, *rest = (cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths)))
        lines.append("  ".join([first, *rest]).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def write_summary(path: Path, settings: dict[str, Any], results: Sequence[Result]) -> None:
    """summary.json: the settings of the run and every figure of every scheme."""
    schemes = []
    for result in results:
        entry = asdict(result)
        sent = result.payload_bytes_per_step
        entry["reduction"] = dense_bytes(results, result) / sent if sent else None
        entry["median_step_ms"] = result.median_step_ms
        schemes.append(entry)
    path.write_text(json.dumps({**settings, "schemes": schemes}, indent=1) + "\n")


def smoothed(values: Sequence[float], window: int) -> list[float]:
    """Mean of the last `window` values at each point."""
    result = []
    for end in range(1, len(values) + 1):
        part = values[max(0, end - window) : end]
        result.append(sum(part) / len(part))
    return result


def plot_losses(path: Path, results: Sequence[Result], unit: str) -> None:
    """losses.png: training loss against steps, and against bytes sent."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (by_step, by_bytes) = pyplot.subplots(1, 2, figsize=(12, 4.5), sharey=True)
    for result in results:
        bits = [loss / math.log(2.0) for loss in smoothed(result.losses, max(1, len(result.losses) // 40))]
        by_step.plot(bits, label=result.label, linewidth=1.3)
        sent = [result.payload_bytes_per_step * (step + 1) / 1e6 for step in range(len(bits))]
        by_bytes.plot(sent, bits, label=result.label, linewidth=1.3)
    by_step.set(xlabel="step", ylabel=f"training loss, {unit}")
    by_bytes.set(xlabel="MB sent by one rank", xscale="log")
    for axes in (by_step, by_bytes):
        axes.grid(alpha=0.3)
    by_step.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
