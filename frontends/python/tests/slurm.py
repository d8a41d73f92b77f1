"""A real Slurm on this host, for tests: munged, slurmctld and slurmd of one node, in a folder of
their own, reachable on loopback only."""

from __future__ import annotations

import os
import pwd
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo", "squeue", "scancel")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_STARTING_S, _ENDING_S = 60.0, 20.0

# The task count of a node may exceed this host's cores. A job with a number of a former test's job
# would use that job's ports. A step that does not end is killed.
_CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
FirstJobId={job}
MpiDefault={mpi}
NodeName=localhost NodeHostname={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def missing() -> list[str]:
    return [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]


class Cluster:
    """A Slurm that takes jobs, until stop()."""

    def __init__(self, folder: Path, mpi: str = "none") -> None:
        self._folder = folder
        self._daemons: list[subprocess.Popen[bytes]] = []
        taken = ("SLURM", "PENSTOCK_CONFIG", "PENSTOCK_LOG_LEVEL", "RANK", "WORLD_SIZE", "MASTER_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(taken)}
        conf = folder / "slurm.conf"
        self.environment = kept | {"SLURM_CONF": str(conf), "PATH": _PATH, "OMP_NUM_THREADS": "1"}
        host = socket.gethostname()
        conf.write_text(_CONFIG.format(
            host=host, folder=folder, user=pwd.getpwuid(os.getuid()).pw_name, ports=_free_ports(2),
            job=random.randrange(1000, 60_000_000), mpi=mpi,
        ))  # fmt: skip
        for name in ("state", "spool"):
            (folder / name).mkdir()
        try:
            self._start(host)
        except BaseException:
            self.stop()
            raise

    def _start(self, host: str) -> None:
        key = self._folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        files = (("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"),
                 ("log-file", "log"), ("seed-file", "seed"))  # fmt: skip
        # munged refuses a socket that other users cannot reach, unless --force is given.
        options = [f"--{option}={self._folder}/munge.{file}" for option, file in files]
        self._daemon("munged", "--foreground", "--force", *options)
        self._until(lambda: (self._folder / "munge.socket").exists())
        self._daemon("slurmctld", "-D")
        self._daemon("slurmd", "-D", "-N", "localhost")
        self._until(lambda: self._told("sinfo", "-h", "-o", "%T") == "idle")

    def _daemon(self, *command: str) -> None:
        with (self._folder / f"{command[0]}.out").open("wb") as output:
            self._daemons.append(subprocess.Popen(
                command, env=self.environment, stdout=output, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            ))  # fmt: skip

    def _told(self, *command: str) -> str:
        asked = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        return asked.stdout.strip()

    def _until(self, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + _STARTING_S
        while not is_so():
            if time.monotonic() > end or any(one.poll() is not None for one in self._daemons):
                logs = [f"{one.name}:\n{one.read_text(errors='replace')[-1500:]}"
                        for one in sorted(self._folder.glob("*.out"))]  # fmt: skip
                raise RuntimeError("Slurm did not start on this host\n" + "\n".join(logs))
            time.sleep(0.2)

    def run(self, *command: object, **variables: str) -> tuple[int, str]:
        """`COMMAND` of Slurm or in its environment. Returns the exit code and both outputs
        joined."""
        words = [str(word) for word in command]
        try:
            done = subprocess.run(
                words, env=self.environment | variables, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, timeout=150,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            said = late.stdout or b""
            return 124, said.decode() if isinstance(said, bytes) else said
        return done.returncode, done.stdout

    def stop(self) -> None:
        """Ends jobs, then daemons."""
        if len(self._daemons) == 3 and all(one.poll() is None for one in self._daemons):
            self._told("scancel", "--state=RUNNING")
            self._told("scancel", "--state=PENDING")
            end = time.monotonic() + _ENDING_S
            while self._told("squeue", "-h") and time.monotonic() < end:
                time.sleep(0.2)
        for one in reversed(self._daemons):
            one.terminate()
            try:
                one.wait(_ENDING_S)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()


def _free_ports(count: int) -> list[int]:
    holders = [socket.socket() for _ in range(count)]
    for one in holders:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in holders]
    for one in holders:
        one.close()
    return ports
