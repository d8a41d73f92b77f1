"""The report at the end of the job: a table, a sentence, a summary and a picture.

    python -m quickstart_job.report build/quickstart/summary.json     the table again, as Markdown
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hosts import link_words as words_of_link

from .figures import Result, as_json, baseline, from_json, reached, smoothed, target_of, window
from .progress import duration, size

# Colours that are told apart by most eyes (Okabe and Ito), dense in black.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def rows(results: Sequence[Result], unit: str) -> list[tuple[str, ...]]:
    """The comparison, a head and one row per scheme."""
    dense = baseline(results)
    steps = results[0].steps if results else 0
    head = ["scheme", f"{unit} after {steps} steps", "moved per rank and step", "less than dense", "step"]
    if dense:
        head += [f"steps to {target_of(dense) / math.log(2.0):.2f} {unit}", "time to it", "against dense"]
    table = [tuple(head)]
    for result in results:
        row = [
            result.label,
            f"{result.bits:.3f}",
            size(result.moved_bytes_per_step),
            f"{result.reduction:.1f} x" if result.reduction else "-",
            f"{result.median_step_ms:.0f} ms",
        ]
        if dense:
            when = reached(result, dense)
            not_in = f"not in {len(result.losses)}"
            row += [str(when.steps), f"{when.seconds:.1f} s", f"{when.against_dense:.2f} x"] if when else [not_in, "-", "-"]
        table.append(tuple(row))
    return table


def table(results: Sequence[Result], unit: str) -> str:
    """The comparison for a terminal; heads that are long stand on several lines."""
    head, *body = rows(results, unit)
    words = [_wrapped(cell, max([9, *(len(row[column]) for row in body)])) for column, cell in enumerate(head)]
    height = max(map(len, words))
    heads = [tuple(([""] * (height - len(cell)) + cell)[line] for cell in words) for line in range(height)]
    everything = [*heads, *body]
    widths = [max(len(row[column]) for row in everything) for column in range(len(head))]
    lines = []
    for row in everything:
        first, *rest = (cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths)))
        lines.append("  ".join([first, *rest]).rstrip())
    lines.insert(height, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def markdown(results: Sequence[Result], unit: str) -> str:
    """The comparison as README and docs/performance.md have it."""
    head, *body = rows(results, unit)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *body))


def link_words(settings: dict[str, Any]) -> str:
    """The link between the hosts of the ranks, in words."""
    link = settings.get("link")
    return f"{settings['ranks']} hosts with links of {words_of_link(link)}" if link else f"{settings['ranks']} ranks of one host"


def title(settings: dict[str, Any]) -> str:
    return f"{settings['task']}, {link_words(settings)}, {settings['steps']} steps, seed {settings['seed']}"


def gain(settings: dict[str, Any], results: Sequence[Result]) -> str:
    """The gain in one sentence; empty if there is nothing to compare."""
    dense = baseline(results)
    others = [result for result in results if not result.dense]
    if dense is None or not others:
        return ""
    where = f"Between {link_words(settings)}"
    goal = f"the loss that dense has after {target_seconds(dense):.3g} s ({target_of(dense) / math.log(2.0):.2f} {settings['unit']})"
    arrived = [(when, result) for result in others if (when := reached(result, dense))]
    if not arrived:
        return f"{where} no other scheme reached {goal} in the steps it had."
    when, best = max(arrived, key=lambda pair: pair[0].against_dense)
    less = f", moving 1/{best.reduction:.0f} of the bytes per step" if best.reduction and best.reduction >= 1.5 else ""
    if when.against_dense < 1.05:
        return f"{where} dense was as fast as any: {best.label} reached {goal} after {when.seconds:.3g} s{less}."
    return f"{where} {best.label} reached {goal} after {when.seconds:.3g} s: {when.against_dense:.1f} times as fast{less}."


def target_seconds(dense: Result) -> float:
    when = reached(dense, dense)
    return when.seconds if when else 0.0


def write_summary(path: Path, settings: dict[str, Any], results: Sequence[Result]) -> None:
    path.write_text(json.dumps(as_json(settings, results), indent=1) + "\n")


def plot_losses(path: Path, settings: dict[str, Any], results: Sequence[Result]) -> None:
    """losses.png: training loss against time, against steps, and against bytes moved; one legend for the three."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 3, figsize=(13, 4.6), sharey=True, layout="constrained")
    by_time, by_step, by_bytes = panels
    colours = iter(COLOURS * (1 + len(results) // len(COLOURS)))
    dense = baseline(results)
    count = window(results[0].steps)
    for result in results:
        bits = [loss / math.log(2.0) for loss in smoothed(result.losses, count)][count - 1 :]
        steps = range(count, len(result.losses) + 1)
        style = {"linewidth": 2.2, "color": "black"} if result is dense else {"linewidth": 1.4, "color": next(colours)}
        by_time.plot([result.seconds_after(step) for step in steps], bits, label=result.label, **style)
        by_step.plot(steps, bits, **style)
        by_bytes.plot([result.moved_bytes_per_step * step / 1e6 for step in steps], bits, **style)
    for axes, label in ((by_time, "seconds of training"), (by_step, "steps"), (by_bytes, "MB moved by one rank")):
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
        if dense is not None:
            axes.axhline(target_of(dense) / math.log(2.0), color="grey", linewidth=0.9, linestyle="--")
            # The fall of the loss in the first steps would take half the picture.
            early = smoothed(dense.losses, count)[: 2 * count][-1] / math.log(2.0)
            if early > target_of(dense) / math.log(2.0):
                axes.set_ylim(top=early)
    by_bytes.set_xscale("log")
    by_time.set_xlim(left=0)
    by_step.set_xlim(left=0)
    by_time.set_ylabel(f"training loss, {settings['unit']}")
    figure.suptitle(f"{settings['task']}, {link_words(settings)}", fontsize=11)
    figure.legend(loc="outside lower center", ncols=len(results), frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def last_words(out: Path, settings: dict[str, Any], results: Sequence[Result]) -> str:
    """The text that rank 0 prints at the end."""
    seconds = sum(result.seconds_after(len(result.step_ms)) for result in results)
    lines = ["", f"{title(settings)}; {duration(seconds)} of training", "", table(results, settings["unit"]), ""]
    lines.append(f"picture, numbers, timeline: {out}/losses.png, summary.json, timeline.json (ui.perfetto.dev)")
    sentence = gain(settings, results)
    return "\n".join([*lines, *([sentence] if sentence else [])])


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m quickstart_job.report SUMMARY.json", file=sys.stderr)
        return 2
    try:
        settings, results = from_json(json.loads(Path(arguments[0]).read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"report: {arguments[0]}: no summary of the job: {error}", file=sys.stderr)
        return 2
    print(f"{title(settings)}:\n\n{markdown(results, settings['unit'])}\n\n{gain(settings, results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
