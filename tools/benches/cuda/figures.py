"""Gathers the figures of tools/gpu-check: one JSON for programs, one table for docs/performance.md.

    python3 tools/benches/cuda/figures.py FOLDER --json figures.json --markdown figures.md

FOLDER has machine.json, the figures of parts as NAME.json, and the output of parts as NAME.txt. A part without a file has
not run.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.cuda.goals import STEPS, bound_ms, goals  # noqa: E402
from gpu_check.parts import NAMES  # noqa: E402

MEASURED = ("kernels", "torch_topk", "small_step", *STEPS)  # NAME.json, a line of JSON at the end
FAILED = "failed: "  # begins the last line of a part that failed
NOT_RUN = "the part was not run, or failed"


def measured(folder: Path, name: str) -> dict[str, Any]:
    """The last JSON line that a part has written or printed; a launcher may have printed lines before."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return {"skipped": checked(folder, name).get("skipped", NOT_RUN)}
    for line in reversed(path.read_text(errors="replace").splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return {"skipped": f"{path.name} holds no figures"}


def checked(folder: Path, name: str) -> dict[str, Any]:
    path = folder / f"{name}.txt"
    if not path.is_file():
        return {"skipped": NOT_RUN}
    lines = [line.rstrip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    if lines and lines[-1].startswith(FAILED):
        return {"said": lines, "failed": True}
    for line in lines:
        if line.removeprefix("-- ").startswith("skipped: "):
            return {"skipped": line.removeprefix("-- ").removeprefix("skipped: ")}
    return {"said": lines}


def gathered(folder: Path) -> dict[str, Any]:
    parts = {name: measured(folder, name) for name in MEASURED}
    about = folder / "machine.json"
    machine = json.loads(about.read_text()) if about.is_file() else {}
    devices = [part["device"] for part in parts.values() if part.get("device", "cpu") != "cpu"]
    return {
        "date": datetime.date.today().isoformat(),
        "device": devices[0] if devices else machine.get("device"),
        **{name: machine.get(name) for name in ("driver", "cuda", "torch")},
        "machine": machine.get("lines", []),
        "goals": [dataclasses.asdict(goal) for goal in goals(parts)],
        "parts": parts,
        "checks": {name: checked(folder, name) for name in NAMES},
    }


# ---- the table ----


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows), ""]


def spread(values: list[float], digits: int = 2) -> str:
    return "{:.{d}f} ({:.{d}f} to {:.{d}f})".format(*values, d=digits)


def count(value: float | None) -> str:
    return "not seen" if value is None else f"{value:g}"


def step_row(name: str, model: dict[str, Any], row: dict[str, Any]) -> tuple[str, ...]:
    found, ranks = row["device"], name.removeprefix("steps_")
    times = (spread(row["step_ms"]), spread(row["not_hidden_ms"]))
    first = (row["scheme"], ranks, *times, f"{row['on_device']} of {row['gradients']}")
    if found is None:
        return (*first, *("-" for _ in range(6)))
    over = f"{found['kernels_ms'] / bound_ms(model, row):.2f}" if found["launches"] else "-"
    overlap = "-" if found["overlap"] is None else f"{found['overlap']:.0%}"
    return (
        *first, f"{found['kernels_ms']:.2f}", over, f"{found['launches']:g} in {row['buckets']}", count(found["waits"]),
        count(found["allocations"]), overlap,
    )  # fmt: skip


STEP_HEAD = (
    "scheme", "ranks", "ms a step", "not hidden, ms", "gradients on the device", "encode and decode, ms", "of 6 copies and 5 us a launch",
    "launches in buckets", "waits", "allocations", "overlap",
)  # fmt: skip


def steps_of(parts: dict[str, Any]) -> list[str]:
    by_model: dict[str, list[tuple[str, ...]]] = {}
    titles: dict[str, list[str]] = {}
    for name in STEPS:
        for model in parts[name].get("models", []):
            title = model["model"]
            copy = f", a copy of all gradients {spread(model['copy_ms'], 3)} ms" if model["copy_ms"] else ""
            titles.setdefault(title, []).append(f"compute alone {spread(model['compute_ms'])} ms{copy} (ranks: {name.removeprefix('steps_')})")
            by_model.setdefault(title, []).extend(step_row(name, model, row) for row in model["schemes"])
    lines = []
    for title, rows in by_model.items():
        lines += [f"Steps of {title}'s gradients; {'; '.join(titles[title])}:", "", *table(STEP_HEAD, rows)]
    return lines


def kernels_of(parts: dict[str, Any]) -> list[str]:
    part = parts["kernels"]
    if "rows" not in part:
        return []
    rows = [
        (row["what"], spread(row["ms"], 3) if "ms" in row else "-", row.get("wrong") or f"{row['fraction_of_copy']:.2f}") for row in part["rows"]
    ]
    return [f"Kernels, {part['numel']} entries, {part['rounds']} rounds:", "", *table(("kernel", "ms", "of a copy's rate"), rows)]


def small_step_of(parts: dict[str, Any]) -> list[str]:
    part = parts["small_step"]
    if "rows" not in part:
        return []
    rows = [f"{row['scheme']} {row['us'][0]:.0f} us ({row['added_us']:+.0f})" for row in part["rows"]]
    return [f"A step of one gradient of {part['bytes']} bytes, one rank, and what its exchange adds: {'; '.join(rows)}.", ""]


def markdown(found: dict[str, Any]) -> str:
    parts = found["parts"]
    if found["device"] is None:
        reasons = dict.fromkeys(part["skipped"] for part in parts.values() if "skipped" in part)
        return f"Not run on a device ({found['date']}): {'; '.join(reasons) or 'everything ran on the CPU'}.\n"
    about = (("driver", "driver"), ("CUDA", "cuda"), ("torch", "torch"))
    versions = [f"{word} {found[name]}" for word, name in about if found[name]]
    first = f"Measured with `tools/gpu-check`: {', '.join([found['device'], *versions, found['date']])}."
    verdicts = {True: "met", False: "**missed**", None: "-"}
    lines = [first, "", *table(("goal", "measured", ""), [(one["goal"], one["measured"], verdicts[one["met"]]) for one in found["goals"]])]
    lines += [*steps_of(parts), *small_step_of(parts), *kernels_of(parts)]
    skipped = [f"{name}: {one['skipped']}" for name, one in {**found["checks"], **parts}.items() if "skipped" in one]
    failed = [name for name, one in found["checks"].items() if "failed" in one]
    for word, names in (("Failed", failed), ("Skipped", skipped)):
        lines += [f"{word}: {'; '.join(names)}.", ""] if names else []
    return "\n".join(lines)


def lines_of_goals(found: dict[str, Any]) -> list[str]:
    """A line for each goal that was measured, with its figure."""
    goals_met = [one for one in found["goals"] if one["met"] is not None]
    lines = [f"{one['goal']}: {one['measured']}{'' if one['met'] else ', missed'}" for one in goals_met]
    rest = len(found["goals"]) - len(goals_met)
    return lines + ([f"not measured: {rest} of {len(found['goals'])}; why is in figures.json"] if rest else [])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--markdown", type=Path, required=True)
    options = parser.parse_args()
    found = gathered(options.folder)
    options.json.write_text(json.dumps(found, indent=2) + "\n")
    options.markdown.write_text(markdown(found))
    print("\n".join(lines_of_goals(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
