#!/usr/bin/env python3
"""Starts processes like launchers without MPI, and checks their output about the other ranks.

Usage: run_rendezvous.py WORKER MODE. Exit status 77: cannot run here; the output has the reason.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "transports"))
from run_ranks import free_port  # noqa: E402

WORKER = sys.argv[1]
OF_LAUNCHERS = ("OMPI_", "PMI_", "PMIX_", "SLURM_", "HOROVOD_", "MASTER_", "PENSTOCK_", "TORCHELASTIC_")


def clean() -> dict[str, str]:
    """The environment without the variables of launchers."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith(OF_LAUNCHERS) and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}


def torchrun_variables(rank: int, size: int, port: int) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def run(size: int, ranks: list[int] | None = None, deadline: float = 20, more: dict[str, str] | None = None) -> list[tuple[int, str, float]]:
    """Status, output and seconds of each started process."""
    port = free_port()
    begin = time.monotonic()
    started = [start(rank, size, port, deadline, more) for rank in (range(size) if ranks is None else ranks)]
    return [(*ends(process), time.monotonic() - begin) for process in started]


def ends(process: subprocess.Popen[str], within: float = 60) -> tuple[int, str]:
    output, _ = process.communicate(timeout=within)
    return process.returncode, output.strip()


def start(rank: int, size: int, port: int, deadline: float, more: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen([WORKER, str(deadline)], env={**clean(), **torchrun_variables(rank, size, port), **(more or {})},
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def expect(condition: object, what: object) -> None:
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
    """No variable of a launcher names other ranks, so the transport gets one rank."""
    ended = run(1)
    expect(ended[0][:2] == (0, expected(1)[0]), ended)


def missing() -> None:
    for status, output, seconds in run(3, ranks=[0, 2], deadline=8):
        expect(status == 1 and "rank 1" in output, output)
        expect(seconds < 40, seconds)


def lost_master() -> None:
    """No process listens at the address. The error has the address and the reason."""
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


def twins_ended(ranks: list[int]) -> list[tuple[int, str]]:
    """A run that is a second old goes on without the other, so starts that took long are repeated."""
    for _ in range(10):
        port, begin = free_port(), time.monotonic()
        started = [start(rank, 2, port, 4) for rank in ranks]
        took = time.monotonic() - begin
        ended = [ends(process) for process in started]
        if took < 0.3:
            break
    return ended


def twins() -> None:
    """Two runs with equal address and port, started at one instant. No ranks of different runs train together, and a rank that
    learns of the other run reports it."""
    starts = 200 if "TEST_LONG" in os.environ else 5
    n_named = 0
    for turn in range(starts):
        ended = twins_ended([0, 1, 0, 1] if turn % 2 == 0 else [1, 0, 1, 0])
        expect(all(status == 1 for status, _ in ended), ended)
        n_named += sum("is there twice" in output for _, output in ended)
        expect(any("is there twice, process" in output and "PENSTOCK_PORT" in output for _, output in ended), ended)
    print(f"{starts} starts of two runs at one place: no rank went on; {n_named} of {4 * starts} ranks name the other run")


def late() -> None:
    """Other ranks wait, with warnings, for a rank that comes long after the deadline."""
    for second in (0, 1):
        port = free_port()
        more = {"RENDEZVOUS_S": "30"}
        first = start(1 - second, 2, port, 2, more)
        time.sleep(6)
        other = start(second, 2, port, 2, more)
        (status, output), (other_status, other_output) = ends(first), ends(other)
        expect((status, other_status) == (0, 0), output + other_output)
        who = r"has waited \d+\.\d s for rank 0" if second == 0 else r"rank 1 has not come to the run for \d+\.\d s"
        expect(output.count("warning: ") >= 2 and re.search(who, output), output)


def fails() -> None:
    """The transport of rank 1 cannot join, and all ranks get the reason at once."""
    for status, output, seconds in run(3, deadline=40, more={"FAILS_IN_JOIN": "1"}):
        expect(status == 1 and "out of descriptors" in output and ("rank 1" in output or "joining" in output), output)
        expect(seconds < 10, seconds)


def profile() -> None:
    """Only rank 0 writes the profile. If it cannot, all ranks get the reason."""
    for status, output, _ in run(3, more={"PROFILE": "/no/such/folder/profile.csv"}):
        expect(status == 1 and 'runtime.profile is "/no/such/folder/profile.csv", which cannot be written' in output, output)


def ipv6() -> None:
    """In a network without IPv4 (ipv6_only.sh), by address, by a name with only an IPv6 address, and by a name whose IPv4
    address is not up."""
    for place in ("::1", "[::1]", "fd00::7", "only.ipv6.test", "both.ipv6.test"):
        ended = run(2, more={"MASTER_ADDR": place})
        expect([output for _, output, _ in ended] == expected(2), ended)


def torchrun() -> None:
    """torchrun itself, which has its own store at MASTER_PORT."""
    if importlib.util.find_spec("torch") is None:
        print("this Python has no torch, and so no torchrun")
        raise SystemExit(77)
    ran = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1",
                          "--master-port", str(free_port()), "--no-python", WORKER, "40"],
                         env=clean(), capture_output=True, text=True, timeout=80, check=False)
    lines = sorted(line for line in ran.stdout.splitlines() if line.startswith("rank "))
    expect(ran.returncode == 0 and lines == expected(2), ran.stdout + ran.stderr)


MODES = {"alone": alone, "told_alone": told_alone, "pair": lambda: all_meet(2), "four": lambda: all_meet(4), "missing": missing,
         "lost_master": lost_master, "wrong_name": wrong_name, "conflict": conflict, "nonsense": nonsense, "torchrun": torchrun,
         "twins": twins, "late": late, "fails": fails, "profile": profile, "ipv6": ipv6}

if __name__ == "__main__":
    MODES[sys.argv[2]]()
