"""Hosts made of network namespaces, joined by a bridge, each link shaped at both ends.

All of it lies in private namespaces (network, mounts, processes) that one process holds. It ends when the `with` block
does, or when this program does in any other way, by a signal too; the kernel then ends every process in them and takes
down the links. So nothing of it is ever seen on the machine itself, and nothing is left. Needs root, iproute2 and
util-linux.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SUBNET = "10.210.0"
FOLDER = Path(__file__).resolve().parent
NAMES = Path("/run/netns")  # here `ip netns` keeps names; every use mounts a folder of its own
HOSTFILE = NAMES / "penstock/hosts"  # inside

_RATE = re.compile(r"(\d+(?:\.\d+)?)([kmgt]i?)?(bit|bps)", re.IGNORECASE)


def rate_words(words: str) -> str:
    """The same rate as people write it: 100 Mb/s."""
    match = _RATE.fullmatch(words)
    if match is None:
        return words
    prefix = (match[2] or "").lower()
    return f"{match[1]} {prefix if prefix == 'k' else prefix.capitalize()}{'B' if match[3].lower() == 'bps' else 'b'}/s"


class HostsError(RuntimeError):
    """Such hosts cannot be made here; the message says why."""


def link_rate(words: str) -> float:
    """Bits per second of a rate as tc writes it: 100mbit, 1.5gbit, 12mbps (bytes). Errors: ValueError."""
    match = _RATE.fullmatch(words)
    rate = 0.0
    if match:
        prefix = (match[2] or "").lower()
        base = 1024.0 if prefix.endswith("i") else 1000.0
        rate = float(match[1]) * base ** " kmgt".index(prefix[:1] or " ") * (8 if match[3].lower() == "bps" else 1)
    if not 1e4 <= rate <= 1e12:
        raise ValueError(f"the rate of a link is {words!r}, expected tc's form between 10kbit and 1tbit, as in 100mbit or 1gbit")
    return rate


class Hosts:
    """`count` hosts with `rate` of bandwidth each way ("1gbit"), TCP cubic, each for `ranks_per_host` ranks, which meet in
    shared memory. Use as a context manager."""

    def __init__(self, count: int, rate: str, ranks_per_host: int = 1) -> None:
        self.count, self.rate, self.ranks_per_host = count, rate, ranks_per_host
        # The burst of a link: 2 ms of its rate, so that a small message takes time for its bytes too, but at least as much
        # as a timer needs.
        self.burst_bytes = max(32_000, round(link_rate(rate) / 8 * 2e-3))
        self._holder: subprocess.Popen[str] | None = None

    def __enter__(self) -> Hosts:
        for tool in ("ip", "tc", "unshare", "nsenter"):
            if shutil.which(tool) is None:
                raise HostsError(f"{tool} is not on the PATH (Debian: apt-get install iproute2 util-linux)")
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        try:
            # It stays, as after `ip netns add`: to remove it would take the names of other hosts away, which are mounted on it.
            NAMES.mkdir(exist_ok=True)
        except OSError as error:
            raise HostsError(f"{NAMES} cannot be made: {error.strerror}") from error
        private = ["unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--mount", "--net", "--"]
        make = [str(FOLDER / "make.sh"), str(self.count), SUBNET, str(self.ranks_per_host), *map(str, self._joined_by())]
        # A session of its own: an interrupt at the terminal is for the job, which goes first.
        self._holder = subprocess.Popen(
            [*private, *make],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        assert self._holder.stdout is not None
        said = []
        for line in self._holder.stdout:
            if line == "ready\n":
                return
            said.append(line.strip())
        raise HostsError(said[-1] if said else f"they ended with status {self._holder.wait()}")

    def _joined_by(self) -> list[str | int]:
        """The script that joins them, and its arguments."""
        return ["near.sh", self.rate, self.burst_bytes]

    def _inside(self) -> list[str]:
        assert self._holder is not None
        holder = self._holder.pid
        return ["nsenter", "--target", str(holder), f"--pid=/proc/{holder}/ns/pid_for_children", "--mount", "--net", "--"]

    def cut(self, host: int) -> None:
        """Takes the host's link out of the bridge: packets are lost, and neither end gets an error."""
        subprocess.run([*self._inside(), "ip", "-n", "switch", "link", "set", f"port{host}", "nomaster"], check=True)

    def restore(self, host: int) -> None:
        subprocess.run([*self._inside(), "ip", "-n", "switch", "link", "set", f"port{host}", "master", "bridge0"], check=True)

    def settings(self) -> dict[str, str]:
        """Variables for such links. The caller's variables take precedence."""
        return {}

    def report_text(self) -> str:
        """A report about the links; empty if the kernel alone carries packets."""
        return ""

    def forbid_udp(self, host: int) -> None:
        """Throws the datagrams of this host away, like a firewall."""
        subprocess.run([*self._inside(), "ip", "-n", f"h{host}", "rule", "add", "ipproto", "udp", "blackhole"], check=True)

    def start(self, command: Sequence[str | Path], host: int = 0, **options: Any) -> subprocess.Popen[Any]:
        """Starts `command` on a host. `options` are arguments of Popen."""
        folder = shlex.quote(str(options.pop("cwd", None) or os.getcwd()))  # entering leads to the root
        options["env"] = {**self.settings(), **(options.get("env") or os.environ)}
        line = [*self._inside(), str(FOLDER / "enter.sh"), f"{SUBNET}.{10 + host}", f"cd {folder} && exec {shlex.join(map(str, command))}"]
        return subprocess.Popen(line, **options)

    def environment(self) -> dict[str, str]:
        """Variables with which mpirun, started on a host with `--hostfile HOSTFILE`, starts its ranks over these links."""
        network = f"{SUBNET}.0/24"
        settings = {
            "plm_rsh_agent": str(FOLDER / "enter.sh"),
            "pml": "ob1",
            "btl": "self,tcp" if self.ranks_per_host == 1 else "self,vader,tcp",
            "btl_vader_single_copy_mechanism": "none",  # reading another process's memory may be forbidden
            "btl_tcp_if_include": network,
            "oob_tcp_if_include": network,
            "mpi_yield_when_idle": "1",
            "hwloc_base_binding_policy": "none",
            "orte_tmpdir_base": str(HOSTFILE.parent),
        }
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return root | {f"OMPI_MCA_{name}": value for name, value in settings.items()}

    def mpirun(
        self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None, timeout_s: float = 300.0
    ) -> str:
        """Runs `ranks_per_host` ranks per host and returns their output. RuntimeError, with the end of the output, if they fail."""
        line = ["mpirun", "-np", str(self.count * self.ranks_per_host), "--hostfile", HOSTFILE, *command]
        job = self.start(
            line,
            env={**os.environ, **self.environment(), **(environment or {})},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        with job:
            try:
                out, err = job.communicate(timeout=timeout_s)
            except BaseException:
                job.kill()
                raise
        if job.returncode != 0:
            raise RuntimeError(f"the ranks ended with status {job.returncode}:\n{(out + err)[-2000:]}")
        return str(out)

    def __exit__(self, *_: object) -> None:
        if self._holder is not None:
            assert self._holder.stdin is not None and self._holder.stdout is not None
            self._holder.stdin.close()  # ends the holder, and with it all processes there
            self._holder.wait()
            self._holder.stdout.close()
            self._holder = None
