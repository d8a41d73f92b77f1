"""Gathers what tools/gpu-check measured: one JSON for programs, one table for docs/performance.md.

    python3 tools/benches/cuda/figures.py FOLDER --json figures.json --markdown figures.md [--nvcc PATH] [--skipped REASON]

FOLDER holds kernels.json, torch_topk.json, steps_1.json and steps_2.json, and what checks said as NAME.txt; what is not there was not
run. --skipped says why nothing was.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.cuda.goals import STEPS, bound_ms, goals  # noqa: E402

MEASURED = ("kernels", "torch_topk", *STEPS)  # NAME.json, a line of JSON at the end
METHODS = ("methods", "methods_of_bfloat16", "methods_over_nccl_1", "methods_over_nccl_2", "methods_in_hosts")
CHECKED = ("device", "check", "nccl", "fuses", "sanitizer", *METHODS, "training", *STEPS)  # NAME.txt
FAILED = "failed: "  # begins the last line of a part that failed
NOT_RUN = "the part was not run, or failed"


def measured(folder: Path, name: str, skipped: str) -> dict[str, Any]:
    """What a part wrote or printed last; a launcher may have said something before."""
    path = folder / f"{name}.json"
    if skipped or not path.is_file():
        return {"skipped": skipped or checked(folder, name, "").get("skipped", NOT_RUN)}
    for line in reversed(path.read_text().splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return {"skipped": f"{path.name} holds no figures"}


def checked(folder: Path, name: str, skipped: str) -> dict[str, Any]:
    path = folder / f"{name}.txt"
    if skipped or not path.is_file():
        return {"skipped": skipped or NOT_RUN}
    lines = [line.rstrip() for line in path.read_text().splitlines() if line.strip()]
    for line in lines:
        if line.startswith("skipped: "):
            return {"skipped": line.removeprefix("skipped: ")}
    failed = bool(lines) and lines[-1].startswith(FAILED)
    return {"said": lines, "failed": True} if failed else {"said": lines}


def said_by(command: list[str], pattern: str) -> str | None:
    """What a program says of its version; None where it is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(pattern, done.stdout)
    return found.group(1) if found else None


def gathered(folder: Path, nvcc: str, skipped: str) -> dict[str, Any]:
    parts = {name: measured(folder, name, skipped) for name in MEASURED}
    checks = {name: checked(folder, name, skipped) for name in CHECKED}
    devices = [part["device"] for part in parts.values() if part.get("device", "cpu") != "cpu"]
    torches = [part["torch"] for part in parts.values() if "torch" in part]
    return {
        "date": datetime.date.today().isoformat(),
        "device": devices[0] if devices else None,
        "driver": said_by(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], r"(\d[\d.]*)"),
        "cuda": said_by([nvcc, "--version"], r"release (\d[\d.]*)") if nvcc else None,
        "torch": torches[0] if torches else None,
        "goals": [dataclasses.asdict(goal) for goal in goals(parts)],
        "parts": parts,
        "checks": checks,
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
    rows = [(row["what"], spread(row["ms"], 3), f"{row['fraction_of_copy']:.2f}") for row in part["rows"]]
    return [f"Kernels, {part['numel']} entries, {part['rounds']} rounds:", "", *table(("kernel", "ms", "of a copy's rate"), rows)]


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
    lines += [*steps_of(parts), *kernels_of(parts)]
    skipped = [f"{name}: {one['skipped']}" for name, one in {**found["checks"], **parts}.items() if "skipped" in one]
    failed = [name for name, one in found["checks"].items() if "failed" in one]
    for word, names in (("Failed", failed), ("Skipped", skipped)):
        lines += [f"{word}: {'; '.join(names)}.", ""] if names else []
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--markdown", type=Path, required=True)
    parser.add_argument("--nvcc", default="")
    parser.add_argument("--skipped", default="")
    options = parser.parse_args()
    found = gathered(options.folder, options.nvcc, options.skipped)
    for path, text in ((options.json, json.dumps(found, indent=2) + "\n"), (options.markdown, markdown(found))):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    open_goals = [one for one in found["goals"] if one["met"] is None]
    for one in found["goals"]:
        if one["met"] is not None:
            print(f"{one['goal']}: {one['measured']}{'' if one['met'] else ', missed'}")
    if open_goals:
        print(f"not measured: {len(open_goals)} of {len(found['goals'])} goals; why is in {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
