"""What the survivors say when a rank dies, stops, gives up or disagrees: real processes under mpirun.

Every case: no hang, no silent end; each survivor prints one error that names the rank. Usage:
    run_faults.py WORKER [MODE ...]
"""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time

RANKS = 3
DEADLINE_S = 5

# mode -> what each survivor's message must say, and the ranks that must speak
CASES = {
    "fine": (None, ()),
    "killed": (r"rank 1", (0, 2)),
    "stopped": (r"rank 1", (0, 2)),
    "exits": (r"rank 1", (0, 2)),
    "aborts": (r"the disk is full", (0, 1, 2)),
    "silent": (r"waits for ranks? .*\b1\b|rank 1", (0, 2)),
    "differs": (r"scheduler", (0, 1, 2)),
}


def run(worker: str, mode: str) -> tuple[int, str, float]:
    """Runs one case; kills what is left of it after a bound."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    command = ["mpirun", "-np", str(RANKS), "--oversubscribe", "--bind-to", "none", "--enable-recovery",
               "--mca", "btl", "self,vader", "--mca", "mpi_yield_when_idle", "1", worker, mode, str(DEADLINE_S)]
    start = time.monotonic()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True) as process:
        output = ""
        try:
            # A stopped or silent rank never ends by itself: the survivors' words are what counts.
            expected = CASES[mode][1]
            while (left := start + 6 * DEADLINE_S - time.monotonic()) > 0:
                if not select.select([process.stdout], [], [], left)[0]:
                    break
                chunk = os.read(process.stdout.fileno(), 65536)
                if not chunk:
                    break
                output += chunk.decode(errors="replace")
                spoken = set(map(int, re.findall(r"^rank (\d+) (?:error|done)", output, re.M)))
                if mode in ("stopped", "silent") and set(expected) <= spoken:
                    break
        finally:
            elapsed = time.monotonic() - start
            stop(process)
    return process.returncode, output, elapsed


def stop(process: subprocess.Popen) -> None:
    """Ends the job's own processes: its session, and the ranks, which mpirun puts into sessions of their own."""
    children = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout.split()
    parents = dict(zip(map(int, children[::2]), map(int, children[1::2])))
    if process.poll() is None:
        for pid in [p for p, parent in parents.items() if parent == process.pid]:
            with contextlib.suppress(ProcessLookupError):  # it may end by itself at any moment
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)


def check(worker: str, mode: str) -> list[str]:
    pattern, speakers = CASES[mode]
    _, output, elapsed = run(worker, mode)
    problems = []
    if pattern is None:
        for rank in range(RANKS):
            if f"rank {rank} done" not in output:
                problems.append(f"rank {rank} did not finish")
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


def main() -> int:
    worker, modes = sys.argv[1], sys.argv[2:] or list(CASES)
    problems = [problem for mode in modes for problem in check(worker, mode)]
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
