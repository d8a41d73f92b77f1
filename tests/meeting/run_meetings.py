#!/usr/bin/env python3
"""Starts processes as launchers without MPI do, and looks at what they say of each other.

Usage: run_meetings.py WORKER MODE. Exit status 77: cannot be run here, and why.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time

WORKER = sys.argv[1]
OF_LAUNCHERS = ("OMPI_", "PMI_", "PMIX_", "SLURM_", "HOROVOD_", "MASTER_", "PENSTOCK_", "TORCHELASTIC_")


def clean() -> dict[str, str]:
    """The environment without what launchers have left in it."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith(OF_LAUNCHERS) and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}


def free_port() -> int:
    """A port whose successor is free too: the store takes that one."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def torchrun_variables(rank: int, size: int, port: int) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def run(size: int, ranks: list[int] | None = None, deadline: float = 20, more: dict[str, str] | None = None) -> list[tuple[int, str, float]]:
    """Status, output and seconds of each process that is started."""
    port = free_port()
    begin = time.monotonic()
    started = [subprocess.Popen([WORKER, str(deadline)], env={**clean(), **torchrun_variables(rank, size, port), **(more or {})},
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
               for rank in (range(size) if ranks is None else ranks)]
    ended = []
    for process in started:
        output, _ = process.communicate(timeout=60)
        ended.append((process.returncode, output.strip(), time.monotonic() - begin))
    return ended


def expect(condition: bool, what: object) -> None:
    if not condition:
        raise SystemExit(f"not as expected: {what}")


def expected(size: int) -> list[str]:
    total = sum(rank + 10 for rank in range(size))
    return [f"rank {rank} of {size} on 1 hosts, local {rank} of {size}, sum {total}" for rank in range(size)]


def all_meet(size: int) -> None:
    ended = run(size)
    expect([status for status, _, _ in ended] == [0] * size, ended)
    expect([output for _, output, _ in ended] == expected(size), ended)


def alone() -> None:
    ended = run(1)
    expect(ended[0][:2] == (0, "alone"), ended)


def told_alone() -> None:
    """No launcher speaks of others, so the transport is told that there are none."""
    ended = run(1)
    expect(ended[0][:2] == (0, expected(1)[0]), ended)


def missing() -> None:
    for status, output, seconds in run(3, ranks=[0, 2], deadline=2):
        expect(status == 1 and "rank 1" in output, output)
        expect(seconds < 15, seconds)


def lost_master() -> None:
    """Nobody serves at the address: its name and the reason."""
    (status, output, seconds), = run(2, ranks=[1], deadline=1, more={"MASTER_ADDR": "127.0.0.3"})
    expect(status == 1 and "127.0.0.3" in output and "Connection refused" in output, output)
    expect(seconds < 15, seconds)


def wrong_name() -> None:
    (status, output, _), = run(2, ranks=[1], deadline=1, more={"MASTER_ADDR": "no.such.host.invalid"})
    expect(status == 1 and "'no.such.host.invalid' is no host that this one can find" in output, output)


def conflict() -> None:
    for status, output, _ in run(2, more={"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3"}):
        expect(status == 1 and "two launchers contradict each other" in output and "OMPI_COMM_WORLD_SIZE=3" in output, output)


def nonsense() -> None:
    for status, output, _ in run(2, more={"RANK": "-1"}):
        expect(status == 1 and 'RANK is "-1", expected an integer from 0 to 1' in output, output)


def torchrun() -> None:
    """The launcher itself, which has a store of its own at MASTER_PORT."""
    if importlib.util.find_spec("torch") is None:
        print("this Python has no torch, and so no torchrun")
        raise SystemExit(77)
    ran = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1",
                          "--master-port", str(free_port()), "--no-python", WORKER, "40"],
                         env=clean(), capture_output=True, text=True, timeout=80, check=False)
    lines = sorted(line for line in ran.stdout.splitlines() if line.startswith("rank "))
    expect(ran.returncode == 0 and lines == expected(2), ran.stdout + ran.stderr)


MODES = {"alone": alone, "told_alone": told_alone, "pair": lambda: all_meet(2), "four": lambda: all_meet(4), "missing": missing,
         "lost_master": lost_master, "wrong_name": wrong_name, "conflict": conflict, "nonsense": nonsense, "torchrun": torchrun}

if __name__ == "__main__":
    MODES[sys.argv[2]]()
