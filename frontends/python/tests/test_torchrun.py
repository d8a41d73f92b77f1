"""Jobs of torchrun side by side on one host."""

import os
import random
import socket
import subprocess
import sys

from launch import DEADLINE, HERE


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


def _start(port: int, *arguments: str) -> subprocess.Popen[str]:
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port)]
    taken = ("PENSTOCK_", "MASTER_", "OMPI_", "PMI_", "SLURM_", "HOROVOD_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(taken)}
    environment["PYTHONPATH"] = str(HERE.parent)
    return subprocess.Popen(
        [sys.executable, *launcher, str(HERE / "ranks" / "neighbour.py"), *arguments],
        env=environment | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_two_jobs_at_neighbouring_ports_both_run(tmp_path):
    port, file = _pair_of_ports(), str(tmp_path / "second")
    with _start(port, "waits", file) as first:
        assert first.stdout is not None
        said = ""
        while "summed" not in said and (line := first.stdout.readline()):
            said += line
        with _start(port + 1, "makes", file) as second:
            said_by_second, _ = second.communicate(timeout=DEADLINE)
        if second.returncode != 0:
            first.terminate()
        rest, _ = first.communicate(timeout=DEADLINE)
    assert second.returncode == 0, said_by_second
    assert first.returncode == 0, said + rest
