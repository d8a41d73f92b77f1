"""Named operations of more than 2^31 elements on two ranks, over MPI and over UCX. tools/nightly runs them, if there is
memory for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools"))

from quickstart_job import launch  # noqa: E402

RANKS, DEADLINE_S = 2, 1800
# GiB of both ranks. A broadcast and a sum are in place. A gather has 1 GiB of each rank, the result of the operation, and
# the tensor that the caller gets. The rest is for torch and the transport.
NEEDED_GIB = {"broadcast": 6, "allreduce": 6, "allgather": 12}


def available_gib() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 2**20
    return 0.0


@pytest.mark.parametrize("transport", ["mpi", "ucx"])
@pytest.mark.parametrize("operation", NEEDED_GIB)
def test_operations_of_more_than_two_to_the_31_elements(operation: str, transport: str, tmp_path: Path) -> None:
    if (free := available_gib()) < NEEDED_GIB[operation]:
        pytest.skip(f"{free:.1f} GiB of memory are free, and two ranks need {NEEDED_GIB[operation]}")
    config = tmp_path / "config.toml"
    config.write_text(f'[scheme]\ncollective = "{transport}"\n[runtime]\ndeadline_s = 1200\n')
    by = launch.command if transport == "mpi" else launch.command_of_torchrun
    line = by(RANKS, [str(HERE / "ranks_of_large.py"), operation])
    environment = launch.environment() | {"PENSTOCK_CONFIG": str(config)}
    ran = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=DEADLINE_S)
    assert ran.returncode == 0, f"status {ran.returncode}\n{ran.stdout[-2000:]}\n{ran.stderr[-4000:]}"
    assert f"{operation} is right" in ran.stdout
