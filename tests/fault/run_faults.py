"""The messages of the survivors when a rank dies, stops, gives up or disagrees: real processes under mpirun, or without
mpirun over a transport that does not need it.

In every case no rank hangs or ends silently, and each survivor prints one error that names the rank. Usage:
    run_faults.py [--transport NAME] WORKER [MODE ...]
"""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

RANKS = 3
DEADLINE_S = 5
START = {
    "mpi": ["mpirun", "-np", str(RANKS), "--oversubscribe", "--bind-to", "none", "--enable-recovery",
            "--mca", "btl", "self,vader", "--mca", "mpi_yield_when_idle", "1"],
    "ucx": [sys.executable, str(Path(__file__).parents[1] / "transports/run_ranks.py"), str(RANKS)],
}

# mode -> the text that the message of each survivor must have, and the ranks that must print a message
CASES = {
    "fine": (None, ()),
    "forks": (None, ()),
    "killed": (r"rank 1", (0, 2)),
    "stopped": (r"rank 1", (0, 2)),
    "exits": (r"rank 1", (0, 2)),
    "aborts": (r"the disk is full", (0, 1, 2)),
    "silent": (r"rank 1 did not come to step 3 of set 'model' within .*raise runtime.busy_limit_s", (0, 2)),
    "busy": (None, ()),
    "leaves": (r"rank 1 has left the run after 3 steps of set 'model'", (0, 2)),
    "loads": (r"topkk", (0, 1, 2)),
    "file": (r"/nowhere/run.toml: there is no such configuration file", (0, 1, 2)),
    "unreadable": (r"/proc/self/mem: the configuration file cannot be read: Input/output error", (0, 1, 2)),
    "hangs": (r"encode of compressor 'identity-c' for bucket \d of set 'model', step 2 has not returned for .*the plugin hangs", (0, 1, 2)),
    "constructor": (r"create of collective 'stuck' has not returned for .*the plugin hangs", (0, 1, 2)),
    "circle": (r"ranks 0 and 2 wait in 'loss'", (0, 1, 2)),
    "differs": (r"scheduler", (0, 1, 2)),
}

# A stopped or silent rank, and a rank that left in order and waits for the other ranks in MPI_Finalize.
NEVER_END = ("stopped", "silent", "leaves")


def run(transport: str, worker: str, mode: str) -> tuple[int, str, float]:
    """Runs one case. After a time limit kills the processes that are left."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    command = [*START[transport], worker, mode, str(DEADLINE_S), transport]
    start = time.monotonic()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True) as process:
        output = ""
        try:
            # Some ranks do not end by themselves: only the messages of the survivors count.
            expected = CASES[mode][1]
            while (left := start + 6 * DEADLINE_S - time.monotonic()) > 0:
                if not select.select([process.stdout], [], [], left)[0]:
                    break
                chunk = os.read(process.stdout.fileno(), 65536)
                if not chunk:
                    break
                output += chunk.decode(errors="replace")
                spoken = set(map(int, re.findall(r"^rank (\d+) (?:error|done)", output, re.M)))
                if mode in NEVER_END and set(expected) <= spoken:
                    break
        finally:
            elapsed = time.monotonic() - start
            stop(process)
    return process.returncode, output, elapsed


def stop(process: subprocess.Popen) -> None:
    """Ends the processes of the job: its session, and the ranks, because mpirun puts the ranks into their own
    sessions."""
    children = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout.split()
    parents = dict(zip(map(int, children[::2]), map(int, children[1::2])))
    if process.poll() is None:
        for pid in [p for p, parent in parents.items() if parent == process.pid]:
            with contextlib.suppress(ProcessLookupError):  # the process may end at any moment
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)


def check(transport: str, worker: str, mode: str) -> list[str]:
    pattern, speakers = CASES[mode]
    _, output, elapsed = run(transport, worker, mode)
    problems = []
    if pattern is None:
        for rank in range(RANKS):
            if f"rank {rank} done" not in output:
                problems.append(f"rank {rank} did not finish")
    if mode == "busy" and not re.search(r"which rank 1 has not reached; rank 1: it last did", output):
        problems.append("nobody was warned of rank 1")
    if mode in ("loads", "file", "unreadable"):
        problems += [f"rank {rank} does not name rank 1" for rank in (0, 2)
                     if not re.search(rf"^rank {rank} error 8: the run cannot start: rank 1: ", output, re.M)]
    if mode == "forks":
        problems += forked(output)
    for rank in speakers:
        lines = [line for line in output.splitlines() if line.startswith(f"rank {rank} error")]
        if len(lines) != 1:
            problems.append(f"rank {rank} printed {len(lines)} errors, expected one")
        elif not re.search(pattern, output[output.index(lines[0]):]):
            problems.append(f"rank {rank} does not say what happened: {lines[0]}")
    if elapsed > 4 * DEADLINE_S:
        problems.append(f"took {elapsed:.1f} s with a deadline of {DEADLINE_S} s")
    print(f"{'ok  ' if not problems else 'FAIL'} {mode} ({elapsed:.1f} s)")
    if problems:
        print(output)
    return [f"{mode}: {problem}" for problem in problems]


def forked(output: str) -> list[str]:
    """A child's calls fail with an error, and both children end by themselves."""
    problems = []
    for rank in range(RANKS):
        refused = re.findall(rf"^rank {rank} refused 2: this process was forked", output, re.M)
        if len(refused) != 2:
            problems.append(f"{len(refused)} of 2 calls from rank {rank}'s child were refused")
        for words in ("child", "child after the end"):
            if f"rank {rank} {words} 0\n" not in output:
                problems.append(f"rank {rank}: its {words} did not end with 0")
    return problems


def main() -> int:
    arguments = sys.argv[1:]
    transport = "mpi"
    if arguments[0] == "--transport":
        _, transport, *arguments = arguments
    worker, modes = arguments[0], arguments[1:] or list(CASES)
    problems = [problem for mode in modes for problem in check(transport, worker, mode)]
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
