"""A transport over one of torch's process groups, for runs with ``collective = "borrowed"``.

The plugin `borrowed` provides frames to send and takes received frames
(plugins/collectives/borrowed/borrowed.h). This module moves the frames over the group, with two
threads for each other rank. The run's own threads never wait for Python.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections import deque
from ctypes import CFUNCTYPE, POINTER, byref, c_char, c_uint32, c_uint64, c_void_p
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from penstock import _library as c
from penstock.common.runtime import BorrowedTransport
from penstock.torch import identity, world

_DOOR = "penstock.borrowed/1"
_EXTENSION = 15  # number of words before `extension` in penstock_collective
# A group's own messages begin at tag 0. Each run takes the next tag from this one on.
_FIRST_TAG = 1 << 30
_TAGS = 1 << 20
# A wait that times out closes all connections of the group, so no wait may time out.
_FOR_EVER = timedelta(days=3650)
_PARTING_S = 2.0
_REMEDIES = {
    "ucx": "pip install libucx-cu12 (it needs no device), or the system's UCX (libucx0)",
    "mpi": "install Open MPI (libopenmpi3)",
}

_Create = CFUNCTYPE(c_void_p, c_void_p, c_uint64, POINTER(c_void_p))
_Destroy = CFUNCTYPE(None, c_void_p)
_Extension = CFUNCTYPE(c_void_p, c_void_p, c.Str)


class _Record(ctypes.Structure):
    """penstock_plugin_record."""

    _fields_ = [
        ("magic", c_char * 16),
        ("struct_size", c_uint64),
        ("versions_and_kind", c_uint32 * 4),
        ("texts", c_char * (64 + 32 + 160 + 32 + 160)),
        ("load", CFUNCTYPE(c_void_p, c_void_p, POINTER(POINTER(c_void_p * 2)))),
    ]


class _Door(ctypes.Structure):
    """penstock_borrowed_door."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("frame_bytes", c_uint64),
        ("n_receives", c_uint64),
        ("open", CFUNCTYPE(c_void_p, c_uint32, c_uint32, c_void_p)),
        ("next", CFUNCTYPE(c_void_p, c_void_p, c_uint32, POINTER(c_uint64))),
        ("came", CFUNCTYPE(c_uint32, c_void_p, c_uint32, c_void_p)),
        ("lost", CFUNCTYPE(None, c_void_p, c_uint32, c.Str)),
        ("end", CFUNCTYPE(None, c_void_p)),
        ("close", CFUNCTYPE(None, c_void_p)),
    ]


def lend_process_group(group: dist.ProcessGroup | None = None) -> None:
    """Lends a torch process group to the runs that init() opens from now on, if their configuration
    has ``collective = "borrowed"`` or names no transport.

    group: a group of backend gloo, with all ranks in their order; default: torch's default group.
        The program may continue to use the group, except the tags from 2**30 to 2**30 + 2**20 of
        messages between two ranks.

    Call it on every rank, before init(). ValueError for a group that cannot carry a run, and while
    a runtime is open. If the launcher's usual transport cannot be loaded, a run borrows a default
    group of backend gloo without this call.
    """
    if not dist.is_initialized():
        raise ValueError(
            "lend_process_group found no process group of torch's; call "
            'torch.distributed.init_process_group("gloo") before'
        )
    borrowed = dist.group.WORLD if group is None else group
    _check(borrowed)
    world.borrow_from(lambda: BorrowedRun(borrowed, _next_tag()))


def _check(group: dist.ProcessGroup) -> None:
    """ValueError for a group that cannot carry a run."""
    backends = dict(one.split(":") for one in dist.get_backend_config(group).split(","))
    if backends.get("cpu") != "gloo":
        has = backends.get("cpu") or ", ".join(sorted(set(backends.values())))
        raise ValueError(
            f"lend_process_group got a group of backend {has}, expected gloo, which moves the "
            'memory of the CPU; lend torch.distributed.new_group(backend="gloo")'
        )
    ranks, everyone = dist.get_process_group_ranks(group), list(range(dist.get_world_size()))
    if ranks != everyone:
        raise ValueError(
            f"lend_process_group got a group of the ranks {ranks}, expected all {len(everyone)} in "
            "their order: a run has one transport among all its ranks; lend the default group, or "
            'torch.distributed.new_group(backend="gloo")'
        )


_numbers = itertools.count()


def _next_tag() -> int:
    return _FIRST_TAG + next(_numbers) % _TAGS


def _for_want_of_others() -> tuple[BorrowedTransport, str] | None:
    """The default group as a run's transport, with a warning about it; None unless the group is
    ready and the transport of this launcher cannot be loaded."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    usual = "mpi" if identity.is_below_mpi() else "ucx"
    why = identity.why_not(usual)
    if not why:
        return None
    try:
        _check(dist.group.WORLD)
    except ValueError:
        return None
    said = (
        f"messages go over torch's default group (gloo), because '{usual}' cannot be loaded: "
        f"{why}; "
        f"faster: {_REMEDIES[usual]}"
    )
    return BorrowedRun(dist.group.WORLD, _next_tag()), said


world.borrow_for_want(_for_want_of_others)


class BorrowedRun:
    """The transport of one run over a borrowed group, from before the run opens until it is closed.

    collective, instance: addresses of the transport's table and instance, for
        penstock_runtime_options.
    """

    def __init__(self, group: dist.ProcessGroup, tag: int) -> None:
        self._group = group
        self._tag = tag
        self._door = self._load()
        make_error = ctypes.cast(c.library().error_make, c_void_p)
        self._relay = self._door.open(group.rank(), group.size(), make_error)
        if not self._relay:
            raise MemoryError("no memory for the frames of a borrowed process group")
        # Daemon threads, because a rank that never answers must not block this process's end.
        self._threads = [
            threading.Thread(target=move, args=(peer,), name=f"penstock-borrowed-{peer}", daemon=True)
            for peer in range(group.size())
            if peer != group.rank()
            for move in (self._send, self._receive)
        ]
        for thread in self._threads:
            thread.start()

    def _load(self) -> Any:
        path = c.library().path.parent / "penstock" / "plugins" / "collective-borrowed.so"
        try:
            record = _Record.in_dll(ctypes.CDLL(str(path)), "penstock_plugin")
        except OSError as error:
            raise ImportError(
                f"penstock: {path} could not be loaded: {error}; rebuild the plugins "
                "(cmake --build --preset release)"
            ) from error
        module = POINTER(c_void_p * 2)()
        c.library().check(record.load(None, byref(module)))
        self.collective = module.contents[1]
        words = (c_void_p * (_EXTENSION + 1)).from_address(self.collective)
        instance = c_void_p()
        c.library().check(_Create(words[1])(None, 0, byref(instance)))
        self.instance = instance.value
        self._destroy = _Destroy(words[2])
        return _Door.from_address(_Extension(words[_EXTENSION])(instance, c.Str.of(_DOOR)))

    def _send(self, peer: int) -> None:
        n_bytes = c_uint64()
        longest = c_char * self._door.frame_bytes
        try:
            while frame := self._door.next(self._relay, peer, byref(n_bytes)):
                memory = longest.from_address(frame)
                bytes_ = torch.frombuffer(memory, dtype=torch.uint8, count=n_bytes.value)
                self._group.send([bytes_], peer, self._tag).wait(_FOR_EVER)
        except RuntimeError as error:
            self._lose(peer, error)

    def _receive(self, peer: int) -> None:
        def post(frame: torch.Tensor) -> tuple[torch.Tensor, Any]:
            return frame, self._group.recv([frame], peer, self._tag)

        door = self._door
        try:
            posted = deque(
                post(torch.empty(door.frame_bytes, dtype=torch.uint8, device="cpu"))
                for _ in range(door.n_receives)
            )
            while posted:
                frame, work = posted.popleft()
                work.wait(_FOR_EVER)
                if door.came(self._relay, peer, frame.data_ptr()):
                    posted.append(post(frame))
        except RuntimeError as error:
            self._lose(peer, error)

    def _lose(self, peer: int, error: RuntimeError) -> None:
        first_line = str(error).split("\n", 1)[0]
        self._door.lost(self._relay, peer, c.Str.of(first_line))

    def close(self) -> None:
        """Closes the transport after the runtime is closed or could not open. Waits a short time
        for the other ranks to close theirs. Memory that a slower rank may still use is leaked on
        purpose."""
        self._door.end(self._relay)
        end = time.monotonic() + _PARTING_S
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        if not any(thread.is_alive() for thread in self._threads):
            self._destroy(self.instance)
            self._door.close(self._relay)
