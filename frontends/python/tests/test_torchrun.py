"""Jobs of torchrun: side by side on one host, and started again after a rank died."""

import os
import random
import re
import socket
import subprocess

import pytest
import warm_python
from launch import DEADLINE, HERE, run_ranks
from long_runs import cases


def _pair_of_ports() -> int:
    """A free port whose next port is also free. The system does not give either port to
    connections by itself."""
    while True:
        port = random.randrange(20000, 30000)
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("", port))
                second.bind(("", port + 1))
            except OSError:
                continue
            return port


def _start(launcher: list[str], script: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts an agent of torchrun with the options `launcher`."""
    taken = ("PENSTOCK_", "MASTER_", "OMPI_", "PMI_", "SLURM_", "HOROVOD_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(taken)}
    environment["PYTHONPATH"] = str(HERE.parent)
    python = warm_python.executable()
    return subprocess.Popen(
        [python, "-m", "torch.distributed.run", *launcher, str(HERE / "ranks" / script), *arguments],
        env=environment | {"OMP_NUM_THREADS": "1", "PYTHON_EXEC": python},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _neighbour(port: int, *arguments: str) -> subprocess.Popen[str]:
    return _start(["--nproc-per-node", "2", "--master-port", str(port)], "neighbour.py", *arguments)


@pytest.mark.long
def test_two_jobs_at_neighbouring_ports_both_run(tmp_path):
    port, file = _pair_of_ports(), str(tmp_path / "second")
    with _neighbour(port, "waits", file) as first:
        assert first.stdout is not None
        said = ""
        while "summed" not in said and (line := first.stdout.readline()):
            said += line
        with _neighbour(port + 1, "makes", file) as second:
            said_by_second, _ = second.communicate(timeout=DEADLINE)
        if second.returncode != 0:
            first.terminate()
        rest, _ = first.communicate(timeout=DEADLINE)
    assert second.returncode == 0, said_by_second
    assert first.returncode == 0, said + rest


# Two agents stand for two hosts. After a death they count the restarts differently: only the agent
# of the dead rank counts it. Without torch's group, because gloo too looks into the store for the
# ranks of the present life, and may find those of an earlier one (torch 2.11).
AGAIN = cases([("c10d", 1), ("c10d", 2), ("static", 1)], [("c10d", 2)])


@pytest.mark.parametrize("backend, n_agents", AGAIN)
def test_ranks_that_torchrun_starts_again_meet_each_other_and_no_rank_of_an_earlier_life(
    backend, n_agents, tmp_path
):
    port = _pair_of_ports()
    options = ["--nnodes", str(n_agents), "--nproc-per-node", str(2 // n_agents), "--max-restarts", "3",
               "--monitor-interval", "0.2"]  # fmt: skip
    if backend == "c10d":
        options += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "again"]
    else:
        options += ["--master-port", str(port)]
    agents = [_start(options, "lives.py", str(tmp_path)) for _ in range(n_agents)]
    said = [agent.communicate(timeout=DEADLINE)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0] * n_agents, said
    # Not whole lines: torchrun starts `python -u`, whose print writes the end of a line by itself.
    through = re.findall(r"rank \d+ of \d+ is through", "".join(said))
    assert sorted(through) == ["rank 0 of 2 is through", "rank 1 of 2 is through"], said
    assert {file.name for file in tmp_path.iterdir()} == {"in a step", "before the meeting"}


# Docker's /dev/shm has 64 MiB, in which eight ranks have no room. $0: the number of ranks.
SMALL_DEV_SHM = (
    "mount -t tmpfs -o size=12m tmpfs /dev/shm && "
    'exec "$1" -m torch.distributed.run --standalone --nproc-per-node "$0" "${@:2}"'
)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small /dev/shm")
def test_ranks_go_on_where_dev_shm_has_no_room_for_them():
    small = ("unshare", "--mount", "bash", "-c", SMALL_DEV_SHM)
    done = run_ranks("one_sum.py", 3, starter=small, real=True)
    assert done.returncode == 0 and done.stdout.count("all checks passed") == 3, done.stdout
    assert "UCX got no memory in /dev/shm" in done.stdout, done.stdout
