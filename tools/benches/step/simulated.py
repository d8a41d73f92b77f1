"""Cells that no machine here can measure: `penstock plan` predicts them, and the page says that they are predicted."""

from __future__ import annotations

import datetime
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hosts import rate_words

from benches.step import models
from benches.step.contestants import CONF

BEGIN, END = "<!-- simulated: tools/bench step --simulate and --page write what follows -->", "<!-- end of what is simulated -->"
SCHEMES = ("topk-residual", "dgc", "power-sgd", "acp-sgd", "ef-sign", "ok-topk")
LINKS, HOSTS = ("1gbit", "10gbit", "25gbit"), (4, 64, 1024)
Run = Callable[[list[str]], str]


def ask(command: list[str]) -> str:
    """What a command prints. Errors: SystemExit with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"bench step: {' '.join(command)} ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def words(model: str, hosts: int, link: str) -> list[str]:
    """The command of a cell, as somebody types it in the checkout."""
    schemes = [word for name in SCHEMES for word in ("--scheme", f"conf/{name}.toml")]
    return ["penstock", "plan", "--model", model, "--hosts", str(hosts), "--link", link, *schemes, "--json"]


def cell(model: str, hosts: int, link: str, program: Path, run: Run = ask) -> dict[str, Any]:
    """Milliseconds of a step by scheme, with null where nothing can be predicted."""
    _, *arguments = words(model, hosts, link)
    answer = json.loads(run([str(program), *(str(CONF.parent / word) if word.startswith("conf/") else word for word in arguments)]))
    return {"model": model, "hosts": hosts, "link": link, "step_ms": {one["name"]: one["step_ms"] for one in answer["schemes"]}}


def simulate(file: Path, program: Path, tell: Callable[[str], None]) -> None:
    """Writes all cells and the day to `file`."""
    cells = []
    for model in models.names():
        tell(f"penstock plan --model {model}")
        cells += [cell(model, hosts, link, program) for link in LINKS for hosts in HOSTS]
    lines = ",\n".join(json.dumps(one) for one in cells)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'{{"date": "{datetime.date.today().isoformat()}", "cells": [\n{lines}\n]}}\n')


def times(dense_ms: float, step_ms: float | None) -> str:
    return "-" if step_ms is None else f"{dense_ms / step_ms:.2f}"


def markdown(answer: Mapping[str, Any]) -> str:
    """A table per link: dense, and how many times as fast each scheme is. The best of a row is bold where that is not dense."""
    parts = []
    cells: Sequence[Mapping[str, Any]] = answer["cells"]
    for link in dict.fromkeys(one["link"] for one in cells):
        head = ("model", "ranks", "dense, ms", *SCHEMES)
        lines = [f"### Simulated: {rate_words(link)}, one rank per host", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
        for one in cells:
            if one["link"] == link:
                steps = one["step_ms"]
                dense = steps["dense"]
                known = {name: steps[name] for name in SCHEMES if steps[name] is not None}
                best = min(known, key=known.__getitem__) if known and min(known.values()) < dense else ""
                figures = (f"**{times(dense, steps[name])}**" if name == best else times(dense, steps[name]) for name in SCHEMES)
                lines.append(f"| {one['model']} | {one['hosts']} | {dense:.0f} | {' | '.join(figures)} |")
        parts.append("\n".join(lines))
    example = " ".join(words(*(cells[0][name] for name in ("model", "hosts", "link"))))
    parts.append(f"Predicted on {answer['date']} with `tools/bench step --simulate`, which asks for each row, as for the first, `{example}`.")
    return "\n\n".join(parts)
