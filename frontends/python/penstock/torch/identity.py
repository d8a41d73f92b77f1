"""Who this process is where torch's default group is up: its rank and size count, and its store
brings the ranks together, so that no variable and no further port is needed."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import sys
import time
from typing import Any, Callable

import torch.distributed as dist

from penstock import _library as c

# A first meeting waits as long as torch's own: ranks may prepare their data before it.
_PATIENCE_S = 1800.0
_WARNING_S = 10.0
_MOST_PAUSE_S = 0.05
_GROUP = "torch's default group"

# Meetings over the store of one group; ranks open their runs in one order.
_meetings = itertools.count()


class GroupIdentity:
    """The word of torch's default group, as common.runtime.Introduction."""

    by = _GROUP

    def __init__(self, store: Any) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self._store = store
        self._key = f"penstock/{next(_meetings)}"
        self._rounds = itertools.count()

    def gather(self, text: str) -> list[str]:
        """The texts of all ranks in their order; collective. Polls: a wait inside torch's store
        could not be interrupted, and keeps others from it."""
        key = f"{self._key}/{next(self._rounds)}"
        store = self._store
        store.set(f"{key}/{self.rank}", text)
        store.add(f"{key}/came/{self.rank}", 1)
        store.add(f"{key}/came", 1)
        if self.rank == 0:
            self._wait(lambda: store.add(f"{key}/came", 0) == self.size, key)
            texts = [store.get(f"{key}/{rank}").decode() for rank in range(self.size)]
            store.set(f"{key}/all", json.dumps(texts))
            store.add(f"{key}/told", 1)
            return texts
        self._wait(lambda: store.add(f"{key}/told", 0) == 1, key)
        return json.loads(store.get(f"{key}/all"))

    def _wait(self, is_there: Callable[[], bool], key: str) -> None:
        began = time.monotonic()
        pause, warned = 0.001, began
        while not is_there():
            now = time.monotonic()
            if now - began > _PATIENCE_S:
                raise TimeoutError(
                    f"waited {now - began:.0f} s for {self._missing(key)} of {_GROUP} to come to "
                    "hvd.init(), or to their first backward"
                )
            if now - warned > _WARNING_S and self.rank == 0:
                warned = now
                print(
                    f"penstock warning: rank 0 has waited {now - began:.0f} s for "
                    f"{self._missing(key)} of {_GROUP} to come to hvd.init(), or to their first "
                    "backward",
                    file=sys.stderr,
                    flush=True,
                )
            time.sleep(pause)
            pause = min(_MOST_PAUSE_S, pause * 1.5)

    def _missing(self, key: str) -> str:
        missing = [r for r in range(self.size) if not self._store.add(f"{key}/came/{r}", 0)]
        named = ", ".join(map(str, missing[:8])) + (" and others" if len(missing) > 8 else "")
        return f"rank{'s' * (len(missing) > 1)} {named}" if missing else "rank 0"


def of_default_group() -> GroupIdentity | None:
    """None where torch has no group, or one without a store, as over its MPI back end."""
    if not dist.is_available() or not dist.is_initialized():
        return None
    try:
        store = dist.distributed_c10d._get_default_store()
    except (RuntimeError, ValueError, AttributeError):
        return None
    return None if store is None else GroupIdentity(store)


def is_below_mpi() -> bool:
    """Whether MPI's launcher has started this process, and no torchrun below it."""
    names = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
    return "TORCHELASTIC_RUN_ID" not in os.environ and any(name in os.environ for name in names)


def why_not(plugin: str) -> str:
    """Why a transport's plugin cannot be loaded; empty where it can."""
    library = c.library()
    path = library.path.parent / "penstock" / "plugins" / f"collective-{plugin}.so"
    if not path.exists():
        return f"{path.name} was not built"
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        return str(error)
    return ""
