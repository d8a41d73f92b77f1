"""Ctrl-C on rank 0 while it waits in `join`. Rank 1, which also waits there, and the last rank,
which still trains, get an error that names rank 0."""

from __future__ import annotations

import os
import signal
import threading

import torch
from support import begin, say

import penstock.torch as hvd
from penstock.torch import world

# Processes that were started in the background ignore Ctrl-C, and their children too.
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
        for _ in range(3):  # then rank 0 has waited once and waits again
            rounds.acquire()
        os.kill(os.getpid(), signal.SIGINT)

    runtime.join = join  # type: ignore[method-assign]
    if rank == 0:
        threading.Thread(target=interrupt, daemon=True).start()
    hvd.join()
except hvd.HorovodInternalError as error:
    say(f"survivor {rank}: {' '.join(str(error).split())}")
