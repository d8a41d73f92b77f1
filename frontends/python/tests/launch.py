"""Starts a script of tests/ranks on several ranks under mpirun, with a deadline."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
MPIRUN = (
    "mpirun", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none",
    "--mca", "btl", "self,vader",
)  # fmt: skip


def run_ranks(
    script: str, ranks: int, *arguments: str, env: Mapping[str, str] = {}, timeout: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Runs ranks/SCRIPT on `ranks` processes; output of all of them together. Past the deadline all
    are killed and the return code is 124."""
    if shutil.which("mpirun") is None:
        raise RuntimeError("mpirun was not found; install Open MPI (package openmpi-bin)")
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1", **env)
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), str(HERE)])
    # Short, for Open MPI keeps sockets there.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ps") as scratch:
        environment["TMPDIR"] = scratch
        command = [
            *MPIRUN,
            "-np",
            str(ranks),
            sys.executable,
            str(HERE / "ranks" / script),
            *arguments,
        ]
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout)
            code = process.returncode
        except subprocess.TimeoutExpired:
            _kill(process)
            output, _ = process.communicate()
            code = 124
            output += f"\n{script} on {ranks} ranks did not end within {timeout:g} s\n"
    return subprocess.CompletedProcess(command, code, output)


def _kill(process: subprocess.Popen[str]) -> None:
    # mpirun puts every rank into a process group of its own: ask it to end them before it is killed
    # itself.
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def succeed(
    script: str, ranks: int, *arguments: str, env: Mapping[str, str] = {}, timeout: float = 60.0
) -> str:
    """As run_ranks, for scripts of checks: every rank must have come to the end. Returns the
    output."""
    done = run_ranks(script, ranks, *arguments, env=env, timeout=timeout)
    finished = done.stdout.count("all checks passed")
    assert done.returncode == 0 and finished == ranks, (
        f"{script} on {ranks} ranks: exit code {done.returncode}, {finished} ranks "
        f"finished\n{done.stdout[-8000:]}"
    )
    return done.stdout


def checks_of(script: str) -> Sequence[str]:
    """Names of the checks in a script, as they are defined."""
    lines = (HERE / "ranks" / script).read_text().splitlines()
    return [line.split("(")[0][len("def ") :] for line in lines if line.startswith("def check_")]
