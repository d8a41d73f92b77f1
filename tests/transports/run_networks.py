#!/usr/bin/env python3
"""Ranks over ucx on hosts made of network namespaces: their errors if their networks do not meet, and their listening
ports.

Usage: run_networks.py PROGRAM MODE. PROGRAM is transport_ranks. Exit status 77: cannot run here; the output has the
reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/hosts"))
from hosts import SUBNET, Hosts, HostsError  # noqa: E402

PROGRAM = sys.argv[1]
LIMIT_S = 90
# On each host a second network without a connection to other hosts.
NOWHERE = "ip link add lost type veth peer name others && ip link set lost up && ip link set others up && ip addr add 10.22{host}.0.1/24 dev lost"


def ranks(hosts: Hosts, tests: str, before: str = "true", **variables: str) -> list[tuple[int, str]]:
    """Status and output of the ranks, one rank per host."""
    place = {"WORLD_SIZE": str(hosts.count), "LOCAL_RANK": "0", "MASTER_ADDR": f"{SUBNET}.10", "MASTER_PORT": "29999"}
    started = []
    for rank in range(hosts.count):
        words = " ".join(f"{name}={value}" for name, value in {**place, **variables, "RANK": str(rank)}.items())
        command = f"{before} && exec env {words} {PROGRAM} collective-ucx.so --gtest_filter={tests}"
        started.append(hosts.start(["sh", "-c", command], rank, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = [process.communicate(timeout=LIMIT_S)[0] for process in started]
    return [(process.returncode, text) for process, text in zip(started, said)]


def expect(condition: bool, what: object) -> None:
    if not condition:
        raise SystemExit(f"not as expected: {what}")


def wrong_device() -> None:
    """Each rank names both places and the keys that change them. The first rank that fails ends the run, so the
    other rank may repeat its error."""
    with Hosts(2, "1gbit") as hosts:
        for host in range(2):
            expect(hosts.start(["sh", "-c", NOWHERE.format(host=host)], host).wait(LIMIT_S) == 0, "a second network")
        ended = ranks(hosts, "Ranks.AllGather*", UCX_NET_DEVICES="lost")
        causes = [
            (
                f"rank {rank} at h{rank} (lost 10.22{rank}.0.1) does not reach rank {1 - rank} over UCX: ",
                f"rank {1 - rank} is at h{1 - rank} (lost 10.22{1 - rank}.0.1)",
            )
            for rank in range(2)
        ]
        for status, said in ended:
            expect(status != 0, said)
            expect(any(all(part in said for part in cause) for cause in causes), said)
            expect('devices = "eth0" in [collective.ucx] or UCX_NET_DEVICES' in said, said)
        for status, said in ranks(hosts, "Ranks.AllGather*", UCX_NET_DEVICES="eth0"):
            expect(status == 0, said)


def one_name() -> None:
    """Two networks on hosts with one name. The loopback of one host does not lead to the other host, so the ranks
    must not use it."""
    with Hosts(2, "1gbit") as hosts:
        ended = ranks(hosts, "Ranks.AllGather*", before="hostname same", UCX_TLS="tcp,self")
        expect([status for status, _ in ended] == [0, 0] and "PASSED" in ended[0][1], ended)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("needs root, to make network namespaces")
        sys.exit(77)
    try:
        {"wrong_device": wrong_device, "one_name": one_name}[sys.argv[2]]()
    except HostsError as error:
        print(f"no hosts can be made here: {error}")
        sys.exit(77)
