"""What schemes keep on a rank for ResNet-50, and what of it a step copies so that it can be forgotten: counted, not timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = "resnet50"
SCHEMES = ("topk-residual", "dgc", "ef-sign", "power-sgd", "acp-sgd", "ef21-sgdm", "diana", "gaussian-k", "one-bit", "redsync")
MIB = 2**20


def measure() -> dict[str, Any]:
    """By scheme: bytes of gradients, and of states with and without `[runtime] forget`, and copied in a step."""
    both = {forget: counted(forget) for forget in (True, False)}
    return {scheme: {**both[True][scheme], "single_bytes": both[False][scheme]["state_bytes"]} for scheme in SCHEMES}


def counted(forget: bool) -> dict[str, Any]:
    """In a process of its own, for the key is the run's."""
    places = os.pathsep.join([str(REPOSITORY / "tools"), str(REPOSITORY / "frontends/python")])
    done = subprocess.run([sys.executable, "-m", "benches.states", str(forget).lower()], env=os.environ | {"PYTHONPATH": places},
                          capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"bench: counting states ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def table(figures: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(f"{scheme}, {MODEL}: kept; with [runtime] forget = false; copied per step",
             f"{of['state_bytes'] / MIB:.0f} MiB; {of['single_bytes'] / MIB:.0f} MiB; {of['copied_bytes'] / MIB:.1f} MiB", "")
            for scheme, of in figures.items()]


def markdown(figures: dict[str, Any]) -> str:
    """For docs/performance.md."""
    lines = ["| scheme | kept, MiB | with `forget = false` | copied per step, MiB |", "|---|---|---|---|"]
    for scheme, of in figures.items():
        lines.append(f"| {scheme} | {of['state_bytes'] / MIB:.0f} | {of['single_bytes'] / MIB:.0f} | {of['copied_bytes'] / MIB:.1f} |")
    return "\n".join(lines)


def count(forget: str) -> dict[str, Any]:
    import penstock.torch as hvd
    from benches.step.contestants import scheme_of
    from benches.step.models import read
    from penstock import _library as c
    from penstock.common.gradient_set import GradientSpec
    from penstock.torch import world

    hvd.init(config_text=f'[scheme]\ncompressor = "none"\nmemory = "none"\nscheduler = "fusion"\n[runtime]\nforget = {forget}\n')
    specs = [GradientSpec(gradient.name, gradient.shape, c.FLOAT32) for gradient in read(MODEL)]
    figures = {}
    for scheme in SCHEMES:
        text = scheme_of(scheme).replace('"ucx"', '"mpi"')
        made = world.current().create_set(f"states of {scheme}", specs, c.SET_REPORTS_OUTCOME, text)
        report = made.report()
        figures[scheme] = {"state_bytes": report["state_bytes"], "copied_bytes": report["state_bytes_copied_per_step"]}
        world.current().destroy_set(made)
    hvd.shutdown()
    return figures


if __name__ == "__main__":
    print(json.dumps(count(sys.argv[1])))
