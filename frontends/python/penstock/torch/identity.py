"""The number of this process according to a store of torch: the store of torch's default group, or
the store of torchrun's agent. The ranks have their rendezvous in that store and need no port for
it."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import os
import secrets
import sys
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from penstock import _library as c

_MOST_PAUSE_S = 0.05
_TO_AGENT = timedelta(seconds=30)  # time to reach the agent, which starts before its ranks

# Numbers the rendezvous in the store of one group. All ranks open their runs in one order.
_rendezvous = itertools.count()


class Identity:
    """A rank among the ranks that share a store. Implements common.runtime.Introduction.

    by: the name of the store's owner, for messages.
    """

    def __init__(self, store: Any, rank: int, size: int, by: str) -> None:
        self.rank = rank
        self.size = size
        self.by = by
        self._store = store
        self._key = f"penstock/{next(_rendezvous)}"
        self._rounds = itertools.count()

    def gather(self, text: str, timeout_s: float, warning_s: float) -> list[str]:
        """Gathers the texts of all ranks, see common.runtime.Introduction. Polls, because a wait
        inside torch's store cannot be interrupted and blocks other users of the store."""
        key = f"{self._key}/{next(self._rounds)}"
        one = (_Collector if self.rank == 0 else _Member)(self._store, key, self.rank, self.size)
        one.write(self.rank, mine := json.dumps([secrets.token_hex(8), text]))
        one.texts[self.rank] = mine
        began = time.monotonic()
        pause, warned = 0.001, began
        while not one.has_ended():
            now = time.monotonic()
            if now - began > timeout_s:
                raise TimeoutError(
                    f"waited {now - began:.0f} s for {one.missing()} of {self.by} to come to "
                    "hvd.init(), or to their first backward; raise runtime.rendezvous_timeout_s if they "
                    "may come later"
                )
            if 0 < warning_s < now - warned and self.rank == 0:
                warned = now
                print(
                    f"penstock warning: rank 0 has waited {now - began:.0f} s for "
                    f"{one.missing()} of {self.by} to come to hvd.init(), or to their first "
                    "backward",
                    file=sys.stderr,
                    flush=True,
                )
            time.sleep(pause)
            pause = min(_MOST_PAUSE_S, pause * 1.5)
        return [json.loads(each)[1] for each in one.texts]


class _Gathering:
    """One gathering of texts in a store. The store may outlive its ranks (torchrun restarts them),
    so a key may hold what a rank of an earlier life wrote. Each text has a random mark. Rank 0
    writes all texts that it finds. Each other rank that finds its own text among them confirms
    them by their digest. The texts count when every rank has confirmed them, which no rank of an
    earlier life can do."""

    def __init__(self, store: Any, key: str, rank: int, size: int) -> None:
        self.store, self.key, self.rank, self.size = store, key, rank, size
        self.texts = [""] * size

    def write(self, name: object, text: str) -> None:
        self.store.set(f"{self.key}/{name}", text)
        self.store.add(f"{self.key}/{name}/there", 1)

    def read(self, name: object) -> str:
        """Empty if nobody has written it. To get a missing key would wait."""
        is_there = self.store.add(f"{self.key}/{name}/there", 0) > 0
        return self.store.get(f"{self.key}/{name}").decode() if is_there else ""

    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.texts).encode()).hexdigest()


class _Collector(_Gathering):
    """The side of rank 0."""

    def has_ended(self) -> bool:
        waited = self._unconfirmed()
        if waited:
            before = list(self.texts)
            for rank in waited:
                self.texts[rank] = self.read(rank)
            if self.texts != before and all(self.texts):
                self.write("all", json.dumps(self.texts))
            return False
        # The texts hold the secret of this run, and a store may be open to others.
        for name in (*range(self.size), "all"):
            self.write(name, "")
        self.write("done", self.digest())
        return True

    def _unconfirmed(self) -> list[int]:
        digest = self.digest()
        return [r for r in range(1, self.size) if self.read(f"confirmed/{r}") != digest]

    def missing(self) -> str:
        ranks = [r for r in range(self.size) if not self.texts[r]] or self._unconfirmed()
        named = ", ".join(map(str, ranks[:8])) + (" and others" if len(ranks) > 8 else "")
        return f"rank{'s' * (len(ranks) > 1)} {named}"


class _Member(_Gathering):
    """The side of every other rank."""

    def has_ended(self) -> bool:
        found = json.loads(self.read("all") or "[]")
        if found != self.texts and self.rank < len(found) and found[self.rank] == self.texts[self.rank]:
            self.texts = found
            self.write(f"confirmed/{self.rank}", self.digest())
        return all(self.texts) and self.read("done") == self.digest()

    def missing(self) -> str:
        return "rank 0" if not all(self.texts) else "other ranks"


def of_default_group() -> Identity | None:
    """The identity in torch's default group. None if torch has no group, or if the group has no
    store, as with torch's MPI backend."""
    if not dist.is_available() or not dist.is_initialized():
        return None
    try:
        store = dist.distributed_c10d._get_default_store()
    except (RuntimeError, ValueError, AttributeError):
        return None
    if store is None:
        return None
    return Identity(store, dist.get_rank(), dist.get_world_size(), "torch's default group")


def of_torchrun() -> Identity | None:
    """The identity that torchrun gave this process. None if torchrun has not started it together
    with other processes, if torchrun keeps no store, or if the user has named a port."""
    environment = os.environ
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or "PENSTOCK_PORT" in environment:
        return None
    try:
        rank, size, port = (int(environment[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
        host = environment["MASTER_ADDR"]
    except (KeyError, ValueError):
        return None  # the core reports the error in these variables
    if size == 1 or not dist.is_available():
        return None
    try:
        store = dist.TCPStore(
            host, port, is_master=False, timeout=_TO_AGENT, wait_for_workers=False
        )
    except RuntimeError as error:
        raise RuntimeError(
            f"torchrun's store at {host}:{port} cannot be reached, so the ranks of this run cannot "
            f"find each other: {error}; set PENSTOCK_PORT to a free port of rank 0's host, equal "
            "on all ranks"
        ) from error
    return Identity(store, rank, size, "torchrun")


def is_below_mpi() -> bool:
    """True if MPI's launcher has started this process, without a torchrun in between."""
    environment = os.environ
    # srun's own PMI sets the variables of other MPI implementations.
    is_sruns = environment.get("PMI_JOBID") == f"{environment.get('SLURM_JOB_ID')}.{environment.get('SLURM_STEP_ID')}"
    is_any = "OMPI_COMM_WORLD_SIZE" in environment or ("PMI_SIZE" in environment and not is_sruns)
    return is_any and "TORCHELASTIC_RUN_ID" not in environment


def why_not(plugin: str) -> str:
    """The reason why a transport's plugin cannot be loaded; empty if it can be loaded."""
    library = c.library()
    path = library.path.parent / "penstock" / "plugins" / f"collective-{plugin}.so"
    if not path.exists():
        return f"{path.name} was not built"
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        return str(error)
    return ""
