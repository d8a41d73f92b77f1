"""Process sets, as in Horovod: the ranks that take part in a collective operation.

Set 0 holds all ranks. Other sets are named at init or, if dynamic sets are allowed, added and
removed between operations. Every rank, member or not, must register every set, in one order on all
ranks; the ranks check that they agree.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.common.exceptions import MISMATCH, HorovodInternalError
from penstock.common.runtime import Runtime

NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."
NOT_REGISTERED = "Process set does not exist or has not been registered."


class ProcessSet:
    """A subset of the ranks. Pass it to ``init(process_sets=[...])`` or ``add_process_set()``, and
    then as `process_set` to any collective operation."""

    process_set_id: int | None = None
    ranks: list[int] | None = None  # ascending world ranks
    mpi_comm = None

    def __init__(self, ranks_or_comm: Iterable[int]) -> None:
        """ranks_or_comm: world ranks in any order. Communicators of mpi4py, which Horovod accepts,
        are not offered."""
        if isinstance(ranks_or_comm, (str, bytes)) or not isinstance(ranks_or_comm, Iterable):
            raise ValueError(
                "ProcessSet should be initialized with a list of process ranks, got "
                f"{ranks_or_comm!r}; communicators of mpi4py are not offered"
            )
        self.ranks = sorted(_rank_number(rank) for rank in ranks_or_comm)

    def included(self) -> bool | None:
        """True if this process is a member; None while the set is not registered."""
        if self.process_set_id is None:
            return None
        return table().runtime.topology.rank in self._members()

    def rank(self) -> int | None:
        """The number of this process among the members; None while the set is not registered.
        ValueError on a process that is no member."""
        if self.process_set_id is None:
            return None
        mine = table().runtime.topology.rank
        if mine not in self._members():
            raise ValueError("Process is not part of provided process set.")
        return self._members().index(mine)

    def size(self) -> int | None:
        """The number of members; None while the set is not registered."""
        if self.process_set_id is None:
            return None
        table()
        return len(self._members())

    def _members(self) -> list[int]:
        assert self.ranks is not None
        return self.ranks

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    __repr__ = __str__


def _rank_number(rank: Any) -> int:
    if isinstance(rank, bool):
        raise ValueError(f"a process set got the rank {rank}, expected a number")
    try:
        return operator.index(rank)
    except TypeError:
        raise ValueError(f"a process set got the rank {rank!r}, expected a whole number") from None


global_process_set = ProcessSet([])
global_process_set.process_set_id = 0


class ProcessSetTable:
    """The process sets of one open runtime."""

    def __init__(self, runtime: Runtime, dynamic: bool) -> None:
        self.runtime = runtime
        self.dynamic = dynamic
        self.sets: dict[int, ProcessSet] = {0: global_process_set}
        self._next_id = 1
        self._n_changes = 0
        global_process_set.ranks = list(range(runtime.topology.size))

    def fault_of(self, process_sets: Sequence[Any]) -> str:
        """The reason why the sets cannot all be registered; empty if they can."""
        taken = {tuple(one._members()): one for one in self.sets.values()}
        size = self.runtime.topology.size
        for one in process_sets:
            if not isinstance(one, ProcessSet):
                return f"process_sets holds {one!r}, expected hvd.ProcessSet objects"
            ranks = one._members()
            if not ranks or ranks[0] < 0 or ranks[-1] >= size:
                return f"{one} is empty or has a rank that is not in [0, {size})"
            if len(set(ranks)) != len(ranks):
                return f"{one} names a rank twice"
            if tuple(ranks) in taken:
                return f"{one} is a duplicate of {taken[tuple(ranks)]}"
            taken[tuple(ranks)] = one
        return ""

    def register(self, process_sets: Iterable[ProcessSet]) -> None:
        """Gives the sets their ids. The ranks must have agreed on the sets before."""
        for one in process_sets:
            one.process_set_id = self._next_id
            self.sets[self._next_id] = one
            self._next_id += 1

    def agree(self, action: str, ranks: Sequence[int] | None, fault: str) -> None:
        """Checks that every rank makes an equal change. Collective. ValueError for this rank's own
        fault; HorovodInternalError on every rank if the changes differ."""
        name = f"penstock.process_sets.{self._n_changes}"
        self._n_changes += 1
        mine = json.dumps([action, ranks, bool(fault)])
        texts = self.runtime.gather_text(name, mine)
        if fault:
            raise ValueError(fault)
        for rank, text in enumerate(texts):
            if text != mine:
                other = json.loads(text)
                raise HorovodInternalError(
                    f"process sets: rank {self.runtime.topology.rank} does {action} of {ranks}, "
                    f"rank {rank} {other[0]} of {other[1]}"
                    + (", which it refuses" if other[2] else "")
                    + "; all ranks must change the process sets in one order",
                    MISMATCH,
                )

    def close(self) -> None:
        """Unregisters all sets except the global set, because the runtime is closed."""
        for number, one in self.sets.items():
            if number != 0:
                one.process_set_id = None


_table: ProcessSetTable | None = None


def open_table(opened: ProcessSetTable | None) -> None:
    """Puts the table of a runtime in force. None: the runtime is closed."""
    global _table
    if _table is not None:
        _table.close()
    _table = opened


def table() -> ProcessSetTable:
    """The table in force. ValueError before init."""
    if _table is None:
        raise ValueError(NOT_INITIALIZED)
    return _table


def dynamic_by_environment() -> bool:
    """True if HOROVOD_DYNAMIC_PROCESS_SETS allows sets to change after init."""
    text = os.environ.get("HOROVOD_DYNAMIC_PROCESS_SETS", "").strip()
    try:
        return int(text or "0") > 0
    except ValueError:
        raise ValueError(
            f"HOROVOD_DYNAMIC_PROCESS_SETS is {text!r}, expected 1 or 0; correct or unset it"
        ) from None


def _dynamic_table(change: str) -> ProcessSetTable:
    found = table()
    if not found.dynamic:
        raise ValueError(
            f"Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow {change} process sets after Horovod "
            'initialization, or call init(process_sets="dynamic").'
        )
    return found


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Registers a set and returns it. Collective over all ranks, members or not.

    ValueError if a set of these ranks exists, if a rank does not exist, or if dynamic sets are not
    allowed.
    """
    found = _dynamic_table("adding")
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    found.agree("add", added.ranks, found.fault_of([added]))
    found.register([added])
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Unregisters a set. True if the set was unregistered; False for the global set and for a set
    that is not registered. Collective over all ranks. Operations under way complete normally.

    ValueError if dynamic sets are not allowed.
    """
    if not isinstance(process_set, ProcessSet):
        raise ValueError(f"expected an hvd.ProcessSet, got {process_set!r}")
    number = process_set.process_set_id
    if number is None or number == 0:
        return False
    found = _dynamic_table("removing")
    found.agree("remove", process_set.ranks, "")
    del found.sets[number]
    process_set.process_set_id = None
    return True


def members_of(process_set: ProcessSet | None) -> tuple[int, ...]:
    """The world ranks of an operation over `process_set`, in the form of the C interface: empty for
    all ranks. ValueError if the set is not registered or does not contain this process."""
    if process_set is None or process_set is global_process_set:
        return ()
    if not isinstance(process_set, ProcessSet):
        raise ValueError(f"process_set is {process_set!r}, expected an hvd.ProcessSet")
    if process_set.process_set_id is None:
        raise ValueError(NOT_REGISTERED)
    if not process_set.included():
        raise ValueError(
            f"rank {table().runtime.topology.rank} is not a member of the process set "
            f"{process_set.ranks}"
        )
    return tuple(process_set._members())
