"""Hosts with a distance between them. A router of our own (router/), one process, carries their packets. Each host's line has a
rate and a queue, and each way between two hosts has a delay, jitter and loss. We do not use netem of the kernel, because it is
not everywhere. This module needs /dev/net/tun and a C++ compiler, and the requirements of hosts.py."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .hosts import FOLDER, Hosts, HostsError, link_rate

TUN = Path("/dev/net/tun")
BUILT = FOLDER.parents[1] / "build/hosts"
QUEUE_S = 0.1  # the queue of a host's line in seconds of its rate, as in a home router
SMALLEST_QUEUE = 32_000


@dataclass(frozen=True)
class Way:
    """From one host to another: uniform jitter around the delay, and the share of packets that is lost."""

    delay_ms: float
    jitter_ms: float = 0.0
    loss: float = 0.0


@dataclass(frozen=True)
class RouterReport:
    """The work of the router since the last report. The router is late if it hands a packet on after its time."""

    delivered: int
    lost: int  # on the way
    dropped: int  # before a line whose queue was full
    late_ms: float  # at the median
    most_late_ms: float  # at 99 %
    processor: float  # its share of one

    def words(self) -> str:
        return (
            f"the router carried {self.delivered} packets, lost {self.lost} on the way and {self.dropped} before full lines; "
            f"99 % of them within {self.most_late_ms:.2g} ms of their time; it took {100 * self.processor:.2g} % of a processor"
        )


def router() -> Path:
    """The program, compiled where this source has not been yet. Errors: HostsError."""
    sources = sorted((FOLDER / "router").iterdir())
    text = b"".join(source.read_bytes() for source in sources)
    program = BUILT / f"router-{hashlib.sha256(text).hexdigest()[:16]}"
    if program.exists():
        return program
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        raise HostsError("no C++ compiler is on the PATH, which the router between far hosts is made by (Debian: apt-get install g++)")
    BUILT.mkdir(parents=True, exist_ok=True)
    fresh = program.with_suffix(f".{os.getpid()}")  # somebody else may be at it too
    command = [compiler, "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", "-o", fresh, *(one for one in sources if one.suffix == ".cpp")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise HostsError(f"the router between far hosts does not compile: {done.stderr.strip()[-500:]}")
    fresh.rename(program)
    return program


class FarHosts(Hosts):
    """`count` hosts with lines of `rate` each way, and an equal `way` between any two hosts in both directions. The lost packets
    depend on `seed`. `control` is TCP's congestion control, by its name in Linux. Use as a context manager.
    HostsError, also if this machine is too slow for such rates."""

    def __init__(self, count: int, rate: str, way: Way, seed: int = 1, control: str = "cubic", ranks_per_host: int = 1) -> None:
        super().__init__(count, rate, ranks_per_host)
        self.way, self.seed, self.control = way, seed, control

    def _joined_by(self) -> list[str | int]:
        if not os.access(TUN, os.R_OK | os.W_OK):
            raise HostsError(f"{TUN} cannot be opened here, which hosts with a distance between them need")
        return ["far.sh", str(router()), self.seed, self.control]

    def _make(self) -> None:
        super()._make()
        for host in range(self.count):
            self.set_line(host, self.rate)
            for other in range(host):
                self.set_way(host, other, self.way)

    def _tell(self, *words: object) -> str:
        """Sends words to the router and returns its answer. HostsError with the router's message if it refuses."""
        assert self._holder is not None and self._holder.stdin is not None and self._holder.stdout is not None
        try:
            os.write(self._holder.stdin.fileno(), (" ".join(map(str, words)) + "\n").encode())
        except BrokenPipeError:
            pass  # the last answer of the router says why
        answer = self._holder.stdout.readline().strip()
        if answer != "ok" and not answer.startswith("report "):
            raise HostsError(answer or f"the router between the hosts has ended with status {self._holder.wait()}")
        return answer

    def set_line(self, host: int, rate: str, limit_bytes: int | None = None) -> None:
        """Sets the rate of a host's line in both directions, and the size of their queues; by default 100 ms of the rate."""
        bits_per_s = link_rate(rate)
        self._tell("line", host, bits_per_s, limit_bytes or max(SMALLEST_QUEUE, round(bits_per_s / 8 * QUEUE_S)))

    def set_way(self, one: int, other: int, way: Way) -> None:
        """The way between two hosts, in both directions."""
        for pair in ((one, other), (other, one)):
            self._tell("way", *pair, way.delay_ms, way.jitter_ms, way.loss)

    def _between(self, verb: str, host: int, other: int | None) -> None:
        for peer in range(self.count) if other is None else (other,):
            self._tell(verb, host, peer)
            self._tell(verb, peer, host)

    def cut(self, host: int, other: int | None = None) -> None:
        """Loses all between a host and another, or all others, until it is restored; no end is told."""
        self._between("cut", host, other)

    def restore(self, host: int, other: int | None = None) -> None:
        self._between("restore", host, other)

    def settings(self) -> dict[str, str]:
        """A message that is announced first comes a round trip later. Ours are at most 256 KiB long."""
        at_once = {f"OMPI_MCA_btl_tcp_{limit}": "524288" for limit in ("eager_limit", "rndv_eager_limit", "max_send_size")}
        return {"UCX_RNDV_THRESH": "inf", **at_once}

    def report_text(self) -> str:
        return self.report().words()

    def report(self) -> RouterReport:
        """Of the time since the last one."""
        delivered, lost, dropped, *rest = self._tell("report").split()[1:]
        return RouterReport(int(delivered), int(lost), int(dropped), *map(float, rest))
