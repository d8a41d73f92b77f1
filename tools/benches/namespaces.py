"""Hosts for network tests: network namespaces joined by a bridge, each link shaped at both ends.

The traffic never leaves the namespaces; they go when the `with` block ends. Needs root and iproute2.
"""

from __future__ import annotations

import os
import secrets
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

SUBNET = "10.210.0"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Hosts:
    """`count` hosts with `rate` of bandwidth each way ("1gbit"), TCP cubic. Use as a context manager."""

    def __init__(self, count: int, rate: str, burst: str = "256kb") -> None:
        self.count, self.rate, self.burst = count, rate, burst
        # Names of deleted namespaces linger for a moment: every use gets fresh ones.
        self.prefix = f"penstock{secrets.token_hex(3)}"
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Hosts:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        switch = f"{self.prefix}-switch"
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "bridge0", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge0", "up")
        for i in range(self.count):
            host = f"{self.prefix}-h{i}"
            _ip("netns", "add", host)
            _ip("-n", host, "link", "set", "lo", "up")
            _ip("link", "add", "eth0", "netns", host, "type", "veth", "peer", "name", f"port{i}", "netns", switch)
            _ip("-n", switch, "link", "set", f"port{i}", "master", "bridge0", "up")
            _ip("-n", host, "addr", "add", f"{SUBNET}.{10 + i}/24", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")
            # Both ends: the host's sending side, and the switch's side towards it.
            for name, device in ((host, "eth0"), (switch, f"port{i}")):
                subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate",
                                self.rate, "burst", self.burst, "latency", "50ms"], check=True, capture_output=True)
            _ip("-n", host, "route", "replace", f"{SUBNET}.0/24", "dev", "eth0", "congctl", "cubic")
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-hosts-")
        agent = Path(self._folder.name, "agent")
        # mpirun calls it as `agent ADDRESS COMMAND...`; every host gets a name of its own, so that none seem the same.
        agent.write_text(f"""#!/bin/bash
while [[ $1 == -* ]]; do shift; done
number=$((${{1##*.}} - 10)); shift
exec ip netns exec {self.prefix}-h$number unshare -u -- /bin/sh -c "hostname h$number; $*"
""")
        agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
        Path(self._folder.name, "hosts").write_text("".join(f"{SUBNET}.{10 + i} slots=1\n" for i in range(self.count)))

    def mpirun(self, command: Sequence[str], exports: Sequence[str] = (), timeout_s: float = 300.0) -> str:
        """Runs one rank per host and returns what was printed. Errors: RuntimeError with the end of the output."""
        assert self._folder is not None
        line = ["mpirun", "-np", str(self.count), "--hostfile", f"{self._folder.name}/hosts", "--bind-to", "none",
                "--mca", "plm_rsh_agent", f"{self._folder.name}/agent", "--mca", "pml", "ob1", "--mca", "btl", "self,tcp",
                "--mca", "btl_tcp_if_include", f"{SUBNET}.0/24", "--mca", "oob_tcp_if_include", f"{SUBNET}.0/24",
                "--mca", "mpi_yield_when_idle", "1"]
        for name in exports:
            line += ["-x", name]
        first = f"hostname h0; exec {' '.join(map(str, [*line, *command]))}"
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        done = subprocess.run(["ip", "netns", "exec", f"{self.prefix}-h0", "unshare", "-u", "--", "sh", "-c", first],
                              env=environment, capture_output=True, text=True, timeout=timeout_s)
        if done.returncode != 0:
            raise RuntimeError(f"the ranks ended with status {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
        return done.stdout

    def __exit__(self, *_: object) -> None:
        names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.split()
        for name in names:
            if name.startswith(f"{self.prefix}-"):
                subprocess.run(["ip", "netns", "del", name], capture_output=True)
        if self._folder is not None:
            self._folder.cleanup()
