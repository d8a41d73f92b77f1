"""Starts a script of tests/ranks on several ranks under mpirun, with a deadline."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
MPIRUN = (
    "mpirun", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none",
    "--mca", "btl", "self,vader",
)  # fmt: skip

# Seconds. A launch takes about five on two idle cores; the rest is for cores that others use too.
DEADLINE = 180.0


def run_ranks(
    script: str,
    ranks: int,
    *arguments: str,
    options: Sequence[str] = (),
    module: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs ranks/SCRIPT on `ranks` processes; the output of all of them together. Past the deadline
    all are killed and the return code is 124.

    options: further ones for mpirun. module: what runs the script (python -m), if not python.
    """
    if shutil.which("mpirun") is None:
        raise RuntimeError("mpirun was not found; install Open MPI (package openmpi-bin)")
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1")
    environment["PENSTOCK_TEST_DEADLINE"] = str(DEADLINE)
    environment.pop("PENSTOCK_CONFIG", None)
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), str(HERE)])
    runner = [sys.executable] if module is None else [sys.executable, "-m", module]
    program = [*runner, str(HERE / "ranks" / script), *arguments]
    command = [*MPIRUN, *options, "-np", str(ranks), *program]
    # A short path, for Open MPI keeps sockets there.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ps") as scratch:
        environment["TMPDIR"] = scratch
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=DEADLINE)
            code = process.returncode
        except subprocess.TimeoutExpired:
            _kill(process)
            output, _ = process.communicate()
            code = 124
            output += f"\n{script} on {ranks} ranks did not end within {DEADLINE:g} s\n"
    return subprocess.CompletedProcess(command, code, output)


def _kill(process: subprocess.Popen[str]) -> None:
    # Every rank is in a process group of its own: mpirun ends them when it is asked to end itself.
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def succeed(script: str, ranks: int, *arguments: str) -> None:
    """Runs a script of checks: every rank must come to its end."""
    done = run_ranks(script, ranks, *arguments)
    finished = done.stdout.count("all checks passed")
    assert done.returncode == 0 and finished == ranks, (
        f"{script} on {ranks} ranks: exit code {done.returncode}, {finished} of them finished\n"
        f"{done.stdout[-8000:]}"
    )
