"""Ctrl-C on rank 0 while it waits in `join`: rank 1, which waits there too, and the last rank, which
trains on, get an error that names it."""

from __future__ import annotations

import os
import signal
import threading

import torch
from support import begin, say

import penstock.torch as hvd
from penstock.torch import world

# A suite that was started in the background ignores Ctrl-C, and so do those whom it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
begin()
rank, runtime = hvd.rank(), world.current()
try:
    if rank == hvd.size() - 1:
        while True:
            hvd.allreduce(torch.ones(3), name="on")
    joins, rounds = runtime.join, threading.Semaphore(0)

    def join(patience_us: int) -> int | None:
        rounds.release()
        return joins(patience_us)

    def interrupt() -> None:
        for _ in range(3):  # by then it has waited, and waits again
            rounds.acquire()
        os.kill(os.getpid(), signal.SIGINT)

    runtime.join = join  # type: ignore[method-assign]
    if rank == 0:
        threading.Thread(target=interrupt, daemon=True).start()
    hvd.join()
except hvd.HorovodInternalError as error:
    say(f"survivor {rank}: {' '.join(str(error).split())}")
