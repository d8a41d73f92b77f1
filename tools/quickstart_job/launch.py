"""Starts the job on real ranks: over `penstock run` where it is built, over mpirun with the same flags elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hosts.hosts import HOSTFILE

REPOSITORY = Path(__file__).resolve().parents[2]
# The frontend and the command are from the checkout, or from a wheel that `tools/quickstart --wheel` has installed in a folder.
WHEEL = os.environ.get("PENSTOCK_QUICKSTART_WHEEL")
PENSTOCK = Path(WHEEL) / "bin/penstock" if WHEEL else REPOSITORY / "build/release/bin/penstock"

# One process per rank on however many cores there are: no binding, yield while idle.
MPIRUN = ("mpirun", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1")


class LaunchError(RuntimeError):
    """The ranks did not end well; the message has the end of their output."""


def command(ranks: int, arguments: Sequence[str]) -> list[str]:
    """The command line that runs `python ARGUMENTS` on `ranks` ranks."""
    job = [sys.executable, *arguments]
    if PENSTOCK.exists():
        return [str(PENSTOCK), "run", "--no-prefix", "-np", str(ranks), "--", *job]
    if shutil.which("mpirun") is None:
        raise LaunchError(f"neither {PENSTOCK} nor mpirun was found; run tools/setup")
    return [*MPIRUN, "-np", str(ranks), *job]


def command_of_torchrun(ranks: int, arguments: Sequence[str]) -> list[str]:
    """The command line with torchrun, so that ranks meet without MPI."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *arguments]


def command_on_hosts(ranks: int, arguments: Sequence[str]) -> list[str]:
    """The command line with one rank on each host of tools/hosts; start it on the first host."""
    return [str(PENSTOCK), "run", "--no-prefix", "-np", str(ranks), "--hosts", str(HOSTFILE), "--", sys.executable, *arguments]


def environment() -> dict[str, str]:
    """Where the ranks find the job and the frontend; one thread each, so that sums have the order of the simulation."""
    paths = [str(REPOSITORY / "tools"), WHEEL or str(REPOSITORY / "frontends/python")]
    before = os.environ.get("PYTHONPATH")
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths + ([before] if before else [])),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def run_job(
    *, ranks: int, task: str, schemes: Sequence[str], steps: int, seed: int, out: Path, timeout_s: float = 900.0,
    by: Callable[[int, Sequence[str]], list[str]] = command,
) -> dict[str, Any]:  # fmt: skip
    """Trains `schemes` in one launch, whose command line `by` gives, and returns the summary. Errors: LaunchError with
    the last lines of the ranks."""
    out.mkdir(parents=True, exist_ok=True)
    summary = out / "summary.json"
    summary.unlink(missing_ok=True)
    arguments = ["--task", task, "--schemes", ",".join(schemes), "--steps", str(steps), "--seed", str(seed)]
    line = by(ranks, ["-m", "quickstart_job.train", *arguments, "--out", str(out), "--progress", "lines"])
    log = out / "log.txt"
    with log.open("w") as file:
        try:
            process = subprocess.run(line, env=environment(), stdout=file, stderr=file, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise LaunchError(f"the job did not end within {timeout_s:.0f} s; it said: {_tail(log)}") from error
    if process.returncode != 0 or not summary.exists():
        raise LaunchError(f"the job ended with status {process.returncode}; it said: {_tail(log)}")
    return json.loads(summary.read_text())


def _tail(log: Path, lines: int = 25) -> str:
    return "\n" + "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
