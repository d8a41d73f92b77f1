#!/usr/bin/env python3
"""Starts a program as the ranks of a run, as launchers without MPI do, and waits for all ranks.

Usage: run_ranks.py [--last-dies] [--at ADDRESS] RANKS PROGRAM [ARGUMENTS]. Prints the output of the ranks and ends
with 1 if a rank failed. With --last-dies the last rank must be killed by a signal.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import time

LIMIT_S = 100
OF_LAUNCHERS = ("OMPI_", "PMI_", "PMIX_", "SLURM_", "HOROVOD_", "MASTER_", "PENSTOCK_PORT", "PENSTOCK_TOKEN", "TORCHELASTIC_")


def free_port() -> int:
    """A port whose next port is also free, because the store uses the next port. Connections of other programs get ports
    from 32768 on, so they do not take it before a rank listens there."""
    while True:
        port = random.randrange(20000, 30000)
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("", port))
                second.bind(("", port + 1))
            except OSError:
                continue
            return port


def start(ranks: int, command: list[str], address: str) -> list[subprocess.Popen[bytes]]:
    # All ranks would write their report into one file.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(OF_LAUNCHERS) and name != "GTEST_OUTPUT"}
    # Other runs have another token, so no run waits for ranks of another run.
    place = {"MASTER_ADDR": address, "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks), "PENSTOCK_TOKEN": secrets.token_hex(16)}
    return [subprocess.Popen(command, env={**clean, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(ranks)]


def main() -> int:
    arguments = sys.argv[1:]
    last_dies = arguments[0] == "--last-dies"
    arguments = arguments[last_dies:]
    address = "127.0.0.1"
    if arguments[0] == "--at":
        _, address, *arguments = arguments
    ranks, *command = arguments
    started = start(int(ranks), command, address)
    end = time.monotonic() + LIMIT_S
    failed = False
    for rank, process in enumerate(started):
        try:
            status = process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            status = "still running, and was killed"
        if status != (-signal.SIGKILL if last_dies and process is started[-1] else 0):
            print(f"rank {rank}: {status}", file=sys.stderr)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
