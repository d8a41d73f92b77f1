"""Stops this process now and then, as a busy machine does. Imported by support."""

from __future__ import annotations

import os
import random
import signal
import time

BETWEEN_S = 0.4  # the mean time between stops
STOP_S, LONG_STOP_S = 0.08, 1.2  # the mean of most stops, and the longest of the others


def stop_now_and_then(seed: str) -> None:
    """Starts a child that stops and continues this process at random moments, until this process
    ends. Call it before this process has a runtime.

    seed: the moments depend on it and on the rank. They are the same in each run, but what the
    ranks do at these moments is not."""
    stopped = os.getpid()
    if os.fork() != 0:
        return
    for descriptor in range(3):  # who reads the output waits until all have closed it
        os.close(descriptor)
    rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("RANK", "")
    draw = random.Random(f"{seed} {rank}")
    try:
        while os.getppid() == stopped:
            time.sleep(draw.expovariate(1 / BETWEEN_S))
            os.kill(stopped, signal.SIGSTOP)
            rarely = draw.random() < 0.2
            time.sleep(draw.uniform(0, LONG_STOP_S) if rarely else draw.expovariate(1 / STOP_S))
            os.kill(stopped, signal.SIGCONT)
    finally:
        os._exit(0)  # never goes on with the work of its parent
