"""Starts a script of tests/ranks on several ranks under mpirun, with a deadline. With
TEST_FRONTEND_OVER=ucx under torchrun: ranks meet without MPI and the transport is ucx. With
TEST_FRONTEND_OVER=borrowed under torchrun, over a process group of torch. Ranks and torchrun
are warm pythons (warm_python.py), unless a test requests real interpreters.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import warm_python
from long_runs import cases

HERE = Path(__file__).resolve().parent
MPIRUN = (
    "mpirun", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none",
    "--mca", "btl", "self,vader",
)  # fmt: skip

TORCHRUN = ("-m", "torch.distributed.run", "--standalone")
OVER = os.environ.get("TEST_FRONTEND_OVER", "mpi")
OVER_UCX = OVER in ("ucx", "borrowed")  # under torchrun

# Starts ranks by environment variables alone, and lets survivors print their errors, unlike
# torchrun and mpirun.
ALONE = (sys.executable, str(HERE.parents[2] / "tests/transports/run_ranks.py"))


# The numbers of ranks for tests of a contract.
WORLDS = cases((1, 2, 3, 4), (1, 3))

# Seconds. A launch takes about five on two idle cores. The rest is for cores with other work.
DEADLINE = 180.0


def run_ranks(
    script: str,
    ranks: int,
    *arguments: str,
    options: Sequence[str] = (),
    module: str | None = None,
    over: str = OVER,
    starter: Sequence[str] = (),
    real: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Runs ranks/SCRIPT on `ranks` processes and returns their output together. After the deadline
    all are killed and the return code is 124.

    options: further options of mpirun. module: a module that runs the script (python -m).
    over: mpi under mpirun; ucx or borrowed under torchrun. starter: a launcher instead of these.
    real: with a real interpreter, which imports torch itself.
    """
    if shutil.which("mpirun") is None:
        raise RuntimeError("mpirun was not found; install Open MPI (package openmpi-bin)")
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1")
    environment["PYTHONFAULTHANDLER"] = "1"  # a crash prints its traceback
    environment["PENSTOCK_TEST_DEADLINE"] = str(DEADLINE)
    environment.pop("PENSTOCK_CONFIG", None)
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), str(HERE)])
    python = sys.executable if real else warm_python.executable()
    runner = [] if module is None else ["-m", module]
    program = [*runner, str(HERE / "ranks" / script), *arguments]
    if over == "borrowed":
        program = [str(HERE / "ranks" / "over_borrowed.py"), script, *arguments]
    command = [*MPIRUN, *options, "-np", str(ranks), python, *program]
    if over != "mpi":
        environment["PYTHON_EXEC"] = python  # the command that torchrun starts
        command = [python, *TORCHRUN, "--nproc-per-node", str(ranks), *program]
    if starter:
        command = [*starter, str(ranks), python, *program]
    # A short path, because Open MPI keeps sockets there.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ps") as scratch:
        environment["TMPDIR"] = scratch
        if over == "borrowed":
            chosen = Path(scratch) / "borrowed.toml"
            chosen.write_text('[scheme]\ncollective = "borrowed"\n', encoding="utf-8")
            environment["PENSTOCK_RUN_CONFIG"] = str(chosen)
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
    # Every rank is in a process group of its own. mpirun ends the ranks when it gets a signal to
    # end.
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def run_python(
    *arguments: str | Path, real: bool = False, folder: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs `python ARGUMENTS` without a launcher and with the package on its path. Captures both
    outputs separately.

    folder: the working directory, if not the present one. real: see run_ranks. variables: of the
    environment.
    """
    return subprocess.run(
        [sys.executable if real else warm_python.executable(), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(HERE.parent), **variables},
        capture_output=True,
        text=True,
        timeout=150,
    )


def succeed(
    script: str, ranks: int, *arguments: str, over: str = OVER, real: bool = False
) -> None:
    """Runs a script of checks: every rank must come to its end."""
    done = run_ranks(script, ranks, *arguments, over=over, real=real)
    finished = done.stdout.count("all checks passed")
    assert done.returncode == 0 and finished == ranks, (
        f"{script} on {ranks} ranks: exit code {done.returncode}, {finished} of them finished\n"
        f"{done.stdout[-8000:]}"
    )
