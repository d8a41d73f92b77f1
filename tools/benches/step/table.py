"""From lines of results to tables: a cell is one contestant on one model, link and number of ranks."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hosts import link_words

from benches.step.contestants import DENSE, REFERENCE

Record = Mapping[str, Any]
KEY = ("model", "bandwidth", "ranks", "backward_ms", "contestant")
BEGIN, END = "<!-- measured: tools/bench step --page writes what follows -->", "<!-- end of what is measured -->"
HEAD = ("contestant", "step, ms", "DDP / it", "goal", "sent per rank, MB", "CPU per rank, s", "copies", "encode", "exchange", "decode", "wait")
# By contestant and link, None for any: how many times as fast as which contestant. ResNet-50, four ranks, no compute.
GOALS: dict[tuple[str, str | None], tuple[float, str]] = {
    ("dense", None): (0.99, "ddp"),
    ("topk-residual", "1gbit"): (16.0, "ddp"),
    ("topk-residual", "100mbit"): (50.0, "ddp"),
    ("top-k-signs", "100mbit"): (105.0, "ddp"),
    ("dgc", "100mbit"): (140.0, "ddp"),
    ("power-sgd", None): (5.0, "ddp-powersgd"),
    ("acp-sgd", "1gbit"): (14.0, "ddp"),
    ("acp-sgd", "100mbit"): (1.2, "power-sgd"),
    ("acp-sgd-bf16", "100mbit"): (125.0, "ddp"),
}
# Goals of the scheme that chooses: against the fastest scheme of its choice and against dense, which ran beside it.
CHOOSER, NEAR_BEST, NEAR_DENSE = "auto", 0.95, 0.98
MOST_COPIES = {"topk-residual": 2.4, "acp-sgd": 2.4}  # at 1 Gb/s
MOST_OVER_BOUND = 1.10  # of a step with backward, over the longer of backward and of a step without it


def key(record: Record) -> tuple[Any, ...]:
    return tuple(record[name] for name in KEY)


def read(path: Path) -> list[Record]:
    """The records of a file; none if the file does not exist. ValueError with the line that is no record. A cut-off last line of
    a killed run is ignored."""
    if not path.exists():
        return []
    text = path.read_text()
    lines, records = text.splitlines(), []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            key(record)
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines) and not text.endswith("\n"):
                break
            raise ValueError(f"{path}:{number} is {line[:60]!r}, expected a line that tools/bench step wrote, with {', '.join(KEY)}") from error
        records.append(record)
    return records


def append(path: Path, records: Iterable[Record]) -> None:
    """Adds lines. First removes a cut-off last line of a killed run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.read_text() if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    with path.open("a") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")


def left(wanted: Sequence[tuple[Any, ...]], records: Sequence[Record]) -> list[tuple[Any, ...]]:
    """The cells that no record holds, in their order."""
    there = {key(record) for record in records}
    return [one for one in wanted if one not in there]


def spread(values: Sequence[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def times_as_fast(record: Record, other: Record | None = None) -> list[float]:
    """By round: the other's step over this one's; without another the reference's, which took turns with this one."""
    theirs = record["reference_ms"] if other is None else other["step_ms"]
    return [its / mine for its, mine in zip(theirs, record["step_ms"], strict=True)]


def copies(record: Record) -> float | None:
    """The CPU seconds of a step (all threads, with the transport) over the CPU seconds of copying all gradients once, mean over
    ranks. None if the file is older than this figure, or if the model is so small that a copy takes no time."""
    if not all(record.get("copy_cpu_s") or [0]):
        return None
    return statistics.median(step / copy for step, copy in zip(record["cpu_s"], record["copy_cpu_s"], strict=True))


def over_bound(record: Record, records: Sequence[Record]) -> float | None:
    """A step with backward over its bound, the longer of backward and the exchange alone. None if the cell without backward is missing."""
    alone = [one for one in records if key(one) == key({**record, "backward_ms": 0})]
    if not record["backward_ms"] or not alone:
        return None
    return statistics.median(record["step_ms"]) / max(record["backward_ms"], statistics.median(alone[-1]["step_ms"]))


def words_of(reached: float, least: float, most: float) -> str:
    """Three digits, and whether they lie within."""
    return f"{reached:.3g}" if least <= reached <= most else f"**missed**, {reached:.3g}"


def goals(record: Record, records: Sequence[Record]) -> str:
    """The goals of this cell, and whether they are met; empty if there are none."""
    if (record["model"], record["ranks"]) != ("resnet50", 4):
        return ""
    if record["backward_ms"]:
        over = over_bound(record, records)
        return "" if over is None else f"<= {MOST_OVER_BOUND:.2f} x bound: {words_of(over, 0, MOST_OVER_BOUND)}"
    verdicts, (name, link) = [speed_goal(record, records)], (record["contestant"], record["bandwidth"])
    if name == CHOOSER:
        verdicts = choice_goals(record, [one for one in records if one["run"] == record["run"] and one["contestant"] not in (REFERENCE, CHOOSER)])
    computed = copies(record)
    if link == "1gbit" and name in MOST_COPIES and computed is not None:
        verdicts.append(f"<= {MOST_COPIES[name]:g} copies: {words_of(computed, 0, MOST_COPIES[name])}")
    return "; ".join(filter(None, verdicts))


def choice_goals(record: Record, beside: Sequence[Record]) -> list[str]:
    verdicts = []
    best = min(beside, key=lambda one: statistics.median(one["step_ms"]), default=None)
    dense = next((one for one in beside if one["contestant"] == DENSE), None)
    for least, other, words in ((NEAR_BEST, best, "the best of its ways"), (NEAR_DENSE, dense, "dense")):
        if other:
            verdicts.append(f">= {least:g} x {words}: {words_of(statistics.median(times_as_fast(record, other)), least, float('inf'))}")
    return verdicts


def speed_goal(record: Record, records: Sequence[Record]) -> str:
    name, link = record["contestant"], record["bandwidth"]
    promised = GOALS.get((name, link)) or GOALS.get((name, None))
    if promised is None:
        return ""
    least, against = promised
    ratio = times_as_fast(record)
    if against != REFERENCE:
        others = [one for one in records if one["contestant"] == against and one["run"] == record["run"]]
        if not others:
            return f">= {least:g} x {against} (which did not run beside it)"
        ratio = times_as_fast(record, others[-1])
    return f">= {least:g} x {against}: {words_of(statistics.median(ratio), least, float('inf'))}"


def row(record: Record, records: Sequence[Record]) -> tuple[str, ...]:
    def middle(name: str, digits: int, unit: float = 1.0) -> str:
        return f"{statistics.median(record[name]) / unit:.{digits}f}" if record.get(name) else "-"

    computed = copies(record)
    return (
        record["contestant"], spread(record["step_ms"], 1), spread(times_as_fast(record), 2), goals(record, records),
        middle("wire_bytes", 2, 1e6), middle("cpu_s", 2), "-" if computed is None else f"{computed:.2f}",
        *(middle(name, 0) for name in ("encode_ms", "exchange_ms", "decode_ms", "wait_ms")),
    )  # fmt: skip


def groups(records: Sequence[Record]) -> dict[tuple[Any, ...], list[Record]]:
    """By all but the contestant, the last record of each cell; the fastest first."""
    latest = {key(record): record for record in records}
    found: dict[tuple[Any, ...], list[Record]] = {}
    for record in latest.values():
        found.setdefault(key(record)[:-1], []).append(record)
    order: Callable[[Record], float] = lambda record: -statistics.median(times_as_fast(record))  # noqa: E731
    return {name: sorted(rows, key=order) for name, rows in found.items()}


def title(group: tuple[Any, ...]) -> str:
    model, link, ranks, backward_ms = group
    return f"{model}, {ranks} ranks at {link_words(link)}, " + (f"backward of {backward_ms:g} ms" if backward_ms else "no compute")


def markdown(records: Sequence[Record]) -> str:
    """A table for each model, link, number of ranks and backward, with the commands and dates that made it."""
    parts = []
    for group, rows in groups(records).items():
        lines = [f"### {title(group)}", "", f"| {' | '.join(HEAD)} |", "|" + "---|" * len(HEAD)]
        lines += [f"| {' | '.join(row(record, records))} |" for record in rows]
        made = dict.fromkeys(f"`{record['command']}`, {record['date']}, {len(record['step_ms'])} rounds" for record in rows)
        parts.append("\n".join([*lines, "", "Measured with " + "; ".join(made) + "."]))
    return "\n\n".join(parts)


def write_between(page: Path, markers: tuple[str, str], tables: str) -> None:
    """Puts tables between two lines of the page. Errors: ValueError where it lacks them."""
    text, (begin, end) = page.read_text(), markers
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"{page} has not the two lines {begin!r} and {end!r}, in this order and once each; put them where the tables belong")
    before, rest = text.split(begin)
    page.write_text(f"{before}{begin}\n\n{tables}\n\n{end}{rest.split(end)[1]}")
