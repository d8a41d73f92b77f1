"""Programs with a time limit each, several at a time; none outlives this one, which a signal may end at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

LEAST_S = 3.0  # with less time left no job begins
GRACE_S = 3.0  # after the time of a program is over
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # they ask this program to end
WELL, FAILED, CUT, NOT_REACHED = "ended well", "FAILED", "CUT", "not reached"


class Stopped(BaseException):
    """A signal ends the run; results must still be kept."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Ends:
    """The state of stop_on_signals in this process."""

    later = False  # a signal is noted
    noted = 0


def stop_on_signals() -> None:
    def stop(number: int, _: object) -> None:
        if _Ends.later:
            _Ends.noted = _Ends.noted or number
            return
        ignore_signals()
        raise Stopped(number)

    for number in ENDS:
        signal.signal(number, stop)


@contextmanager
def stopping_later() -> Iterator[None]:
    """A signal in this block raises Stopped at the block's end. Otherwise a program that is just being started would be left behind."""
    _Ends.later = True
    try:
        yield
    finally:
        _Ends.later = False
        number, _Ends.noted = _Ends.noted, 0
        if number:
            ignore_signals()
            raise Stopped(number)


def ignore_signals() -> None:
    """Makes signals that ask for an end do nothing. They are handled and not ignored, because children would inherit that."""
    for number in ENDS:
        signal.signal(number, lambda *_: None)


@dataclass
class Job:
    name: str
    command: Sequence[str]
    cap_s: float
    output: Path
    errors: Path | None = None  # else they go where the output goes
    environment: dict[str, str] = field(default_factory=dict)  # beside this one's


@dataclass
class Ended:
    job: Job
    how: str
    status: int
    seconds: float


def tree(root: int) -> list[int]:
    """`root` and all its descendants, because launchers give their ranks sessions of their own."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue  # it has ended
            children.setdefault(int(parent), []).append(int(entry))
    found = [root]
    for one in found:
        found += children.get(one, [])
    return found


def send(numbers: list[int], signal_number: int) -> None:
    for one in numbers:
        try:
            os.kill(one, signal_number)
        except ProcessLookupError:
            pass


class Running:
    def __init__(self, job: Job, cap_s: float) -> None:
        self.job, self.begin = job, time.monotonic()
        self.cap_s = cap_s
        job.output.parent.mkdir(parents=True, exist_ok=True)
        with job.output.open("wb") as output, (job.errors or job.output).open("ab") as errors:
            self.process = subprocess.Popen(
                job.command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors if job.errors else output, env={**os.environ, **job.environment}
            )

    def seconds(self) -> float:
        return time.monotonic() - self.begin

    def ended(self) -> Ended | None:
        status = self.process.poll()
        if status is not None:
            return Ended(self.job, WELL if status == 0 else FAILED, status, self.seconds())
        if self.seconds() < self.cap_s:
            return None
        self.end(GRACE_S)
        return Ended(self.job, CUT, -1, self.seconds())

    def end(self, grace_s: float) -> None:
        all_of_it = tree(self.process.pid)
        if grace_s > 0:
            send(all_of_it, signal.SIGTERM)
            try:
                self.process.wait(grace_s)
            except subprocess.TimeoutExpired:
                all_of_it += tree(self.process.pid)
        send(all_of_it, signal.SIGKILL)
        self.process.wait()


def run_all(jobs: Sequence[Job], at_once: int, until: float, tell: Callable[[Ended], None]) -> None:
    """Runs each job until it ends, its own time is over, or time.monotonic() is `until`. Calls `tell` for each job at its end."""
    waiting, running = list(jobs), []
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                job = waiting.pop(0)
                room = until - GRACE_S - time.monotonic()
                if room < LEAST_S:
                    tell(Ended(job, NOT_REACHED, -1, 0.0))
                    continue
                try:
                    with stopping_later():
                        running.append(Running(job, min(job.cap_s, room)))
                except OSError as error:
                    job.output.write_text(f"{error}\n")
                    tell(Ended(job, FAILED, 127, 0.0))
            for one in list(running):
                ended = one.ended()
                if ended is not None:
                    running.remove(one)
                    tell(ended)
            time.sleep(0.02)
    finally:
        for one in running:
            one.end(0)
