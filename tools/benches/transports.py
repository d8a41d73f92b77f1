"""Transports against each other, and against torch's gloo: two ranks of one host, and of two hosts (network namespaces)."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hosts import Hosts
from hosts.hosts import SUBNET

LINK = "1gbit"
SMALL = "sum of 8 B"
Launch = Callable[[Sequence[str | Path], Mapping[str, str]], str]


def free_port() -> int:
    """A port whose successor is most likely free too: the run's store takes that one."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def compare(launch: Launch, address: str, interface: str, program: Path, plugins: Path, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Microseconds a message by case, contestant and round. `launch` starts two ranks with more variables and returns what they printed."""
    place = {"MASTER_ADDR": address, "PENSTOCK_PLUGIN_DIRECTORY": str(plugins)}

    def printed(command: Sequence[str | Path], more: Mapping[str, str]) -> Any:
        out = launch(command, {**place, "MASTER_PORT": str(free_port()), **more})
        return json.loads([line for line in out.splitlines() if line[:1] in "{["][-1])

    figures: dict[str, dict[str, list[float]]] = printed([program, str(rounds), "mpi", "ucx"], {})
    gloo = [sys.executable, Path(__file__).with_name("gloo_ranks.py"), str(rounds)]
    figures[SMALL]["gloo"] = printed(gloo, {"GLOO_SOCKET_IFNAME": interface})
    return figures


def measure(program: Path, plugins: Path, mpirun: Sequence[str], rounds: int) -> dict[str, dict[str, dict[str, list[float]]]]:
    def here(command: Sequence[str | Path], variables: Mapping[str, str]) -> str:
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return subprocess.run([*mpirun, "-np", "2", *command], env={**os.environ, **root, **variables}, check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout

    figures = {"one host": compare(here, "127.0.0.1", "lo", program, plugins, rounds)}
    with Hosts(2, LINK) as hosts:
        def between(command: Sequence[str | Path], variables: Mapping[str, str]) -> str:
            passed = [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]
            return hosts.mpirun([*passed, *command])

        figures["two hosts"] = compare(between, f"{SUBNET}.10", "eth0", program, plugins, rounds)
    return figures


def three(values: Sequence[float]) -> list[float]:
    return [statistics.median(values), min(values), max(values)]


def table(figures: Mapping[str, Mapping[str, Mapping[str, list[float]]]], spread: Callable[..., str]) -> list[tuple[str, str, str]]:
    rows = []
    for place, cases in figures.items():
        for case, times in cases.items():
            over = [ours / theirs for ours, theirs in zip(times["ucx"], times["mpi"])]
            goal = "<= 1.2" if case == SMALL else "<= 1.02" if "MB" in case else ""
            rows.append((f"{case}, {place}: ucx; ucx / mpi", f"{spread(three(times['ucx']), ' us')}; {spread(three(over))}", goal))
            if "gloo" in times:
                rows.append((f"{case}, {place}: gloo / ucx", spread(three([a / b for a, b in zip(times["gloo"], times["ucx"])])), ">= 5"))
    return rows
