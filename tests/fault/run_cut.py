"""A link that is cut and restored: two ranks on two hosts of network namespaces (tools/hosts).

A run survives a cut of less than the deadline with the right results, and the test prints for how long the ranks stood
still after the link was restored. A cut of three deadlines ends the run on both ranks with a message. Needs root; if no
hosts can be made, it says so and ends with 77. Usage:
    run_cut.py NAME WORKER CASE ...    a transport; a CASE is a share of the deadline for which the link is cut;
                                       "idle": a cut of half of a long deadline, while nothing is sent; or "no-udp".
                                       wan:CASE is the case over a distance, 50 ms of round trip at 30 Mb/s and a packet of a
                                       thousand lost. wan:late: the round trip is 1.5 s for half of the deadline.
                                       With TEST_LONG=1 all cases
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from hosts import FarHosts, Hosts, HostsError, Way, link_of  # noqa: E402
from hosts.hosts import HOSTFILE, SUBNET  # noqa: E402

DEADLINE_S = 8
LONG_S = 40  # half of it is longer than UCX's default limit for an idle connection
SKIPPED = 77
BEFORE = 20  # steps before the cut
LINKS = {"": "1gbit", "wan": "wan"}  # by the word before the colon of a case
LATE = Way(750.0, jitter_ms=250.0, loss=0.02)
ALL = ["0.1", "0.5", "0.9", "3", "idle", "no-udp"]


class Job:
    """One rank on each of two hosts. Each rank writes into a file, because a cut link carries no output to a
    launcher."""

    def __init__(self, hosts: Hosts, transport: str, worker: str, mode: str, deadline_s: int, folder: Path) -> None:
        self.files = [folder / f"rank{rank}" for rank in (0, 1)]
        for file in self.files:
            file.touch()
        command = [worker, mode, str(deadline_s), transport]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "MASTER_"))}
        clean["UCX_KEEPALIVE_INTERVAL"] = "1s"  # as in a longer run: UCX begins its checks at the first round
        if transport == "mpi":
            # The output would come over the link, so each rank writes into its file.
            line = f'exec "$@" >>{folder}/rank$OMPI_COMM_WORLD_RANK 2>&1'
            plugins = ["-x", "PENSTOCK_PLUGIN_DIRECTORY"] if "PENSTOCK_PLUGIN_DIRECTORY" in clean else []
            start = ["mpirun", "-np", "2", "--hostfile", str(HOSTFILE), *plugins, "sh", "-c", line, "sh", *command]
            self.processes = [hosts.start(start, 0, env={**clean, **hosts.environment()}, stdout=subprocess.DEVNULL,
                                          stderr=subprocess.DEVNULL)]
            return
        place = {"MASTER_ADDR": f"{SUBNET}.10", "MASTER_PORT": "29500", "WORLD_SIZE": "2"}
        self.processes = [
            hosts.start(command, rank, env={**clean, **place, "RANK": str(rank), "LOCAL_RANK": "0"},
                        stdout=self.files[rank].open("w"), stderr=subprocess.STDOUT)
            for rank in (0, 1)
        ]

    def words(self, rank: int) -> str:
        return self.files[rank].read_text(errors="replace")

    def steps(self) -> int:
        """The number of steps that both ranks have completed."""
        return min(len(re.findall(r"^rank \d step", self.words(rank), re.M)) for rank in (0, 1))

    def wait(self, over, limit_s: float) -> float:
        """Seconds until `over` is true. Errors: RuntimeError with the output of the ranks."""
        start = time.monotonic()
        while not over():
            if time.monotonic() > start + limit_s:
                raise RuntimeError(f"not within {limit_s:.0f} s; " + "; ".join(
                    f"rank {rank}: {self.words(rank)[-500:]!r}" for rank in (0, 1)))
            time.sleep(0.01)
        return time.monotonic() - start

    def ended(self) -> bool:
        return all(re.search(r"^rank \d (done|error|wrong)", self.words(rank), re.M) for rank in (0, 1))


def survive(job: Job, hosts: Hosts, cut_s: float) -> str:
    job.wait(lambda: job.steps() >= BEFORE, 60)
    hosts.cut(1)
    time.sleep(cut_s)
    made = job.steps()
    hosts.restore(1)
    # TCP may need as much time again as the cut lasted.
    back_s = job.wait(lambda: job.steps() > made + 1 or job.ended(), 2 * cut_s + 10)
    job.wait(job.ended, 120)
    for rank in (0, 1):
        if f"rank {rank} done" not in job.words(rank):
            raise RuntimeError(f"rank {rank}: {job.words(rank)[-500:]}")
        if "no UDP gets through" in job.words(rank):
            raise RuntimeError(f"rank {rank} says that datagrams do not come")
    return f"goes on {back_s:.1f} s after the link is back"


def end(job: Job, hosts: Hosts, limit_s: float) -> str:
    job.wait(lambda: job.steps() >= BEFORE, 60)
    hosts.cut(1)
    try:
        took_s = job.wait(job.ended, limit_s)
    finally:
        hosts.restore(1)
    for rank, expected in ((0, "rank 1 failed: it has been silent for"), (1, "rank 0 failed: its control server has been silent for")):
        # Whoever waits for a bucket is told which one; between two buckets the message is the cause alone.
        if not re.search(rf"^rank {rank} error 8: (set 'model', step \d+, bucket \d+: )?{expected}", job.words(rank), re.M):
            raise RuntimeError(f"rank {rank}: {job.words(rank)[-500:]}")
    return f"ended on both {took_s:.1f} s after the cut"


def late(job: Job, hosts: FarHosts) -> str:
    job.wait(lambda: job.steps() >= BEFORE, 60)
    hosts.set_way(0, 1, LATE)
    time.sleep(DEADLINE_S / 2)
    hosts.set_way(0, 1, hosts.way)
    job.wait(job.ended, 120)
    for rank in (0, 1):
        if f"rank {rank} done" not in job.words(rank):
            raise RuntimeError(f"rank {rank}: {job.words(rank)[-500:]}")
    return "nobody is taken for dead, and the run ends well"


def without_udp(job: Job) -> str:
    job.wait(job.ended, 60)
    said = len(re.findall(r"no UDP gets through between rank 0 and rank 1", job.words(0)))
    if said != 1 or not all(f"rank {rank} done" in job.words(rank) for rank in (0, 1)):
        raise RuntimeError(f"rank 0 said it {said} times; {job.words(0)[-500:]}{job.words(1)[-300:]}")
    return "said once, and the run ends well"


def hosts_of(case: str, count: int) -> Hosts:
    return link_of(LINKS[case.rpartition(":")[0]]).hosts(count)


def check(transport: str, worker: str, named: str) -> bool:
    case = named.rpartition(":")[2]
    deadline_s = {"no-udp": 2, "idle": LONG_S}.get(case, DEADLINE_S)
    with hosts_of(named, 2) as hosts, tempfile.TemporaryDirectory() as folder:
        if case == "no-udp":
            hosts.forbid_udp(1)
        job = Job(hosts, transport, worker, "idle" if case == "idle" else "cut", deadline_s, Path(folder))
        try:
            if case == "no-udp":
                said = without_udp(job)
            elif case == "idle":
                said = survive(job, hosts, deadline_s / 2)
            elif case == "late":
                said = late(job, hosts)
            elif float(case) < 1:
                said = survive(job, hosts, float(case) * deadline_s)
            else:
                said = end(job, hosts, float(case) * deadline_s)
        except RuntimeError as error:
            print(f"FAIL {transport}, {named}: {error}", flush=True)
            return False
    print(f"ok   {transport}, {named}, deadline {deadline_s} s: {said}", flush=True)
    return True


def main() -> int:
    transport, worker, *cases = sys.argv[1:]
    try:
        with hosts_of(cases[0], 1):
            pass
    except HostsError as error:
        print(f"no hosts can be made here: {error}")
        return SKIPPED
    if os.environ.get("TEST_LONG") == "1":
        far = cases[0].startswith("wan:")
        cases = [f"wan:{case}" for case in [*ALL, "late"]] if far else ALL
    return 0 if all([check(transport, worker, case) for case in cases]) else 1


if __name__ == "__main__":
    sys.exit(main())
