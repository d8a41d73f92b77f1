"""Simulated CUDA devices (tests/device) under the real runtime, for a frontend whose torch cannot
make CUDA tensors here.

A folder of its own holds the runtime and, under the name of the CUDA part, the simulated devices,
so that the runtime really declares, copies and waits. torch's tensors lie over the memory of the
devices, and torch takes them for tensors of the CPU. If code reads or writes such a tensor from the
host, the program ends with a message. Functions of this module replace the functions of
penstock.torch.devices, because torch does not know these devices. All other code is the code that
users run.
"""

from __future__ import annotations

import ctypes
import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import (
    CFUNCTYPE,
    POINTER,
    byref,
    c_bool,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any, Callable

import torch

from penstock import _library as c
from penstock.common.devices import HOST, TABLE_FILE, Place
from penstock.torch import devices

BUILT = Path(__file__).resolve().parents[3] / "build" / "release" / "lib"
SIMULATED = BUILT / "libpenstock_device_simulated.so"


def lay_out(folder: Path) -> Path:
    """Puts the runtime and the simulated devices into `folder`; returns the library there."""
    library = folder / "libpenstock.so.0"
    shutil.copy(BUILT / "libpenstock.so.0", library)
    shutil.copy(SIMULATED, folder / TABLE_FILE)
    (folder / "penstock").symlink_to(BUILT / "penstock")
    return library


class _Settings(ctypes.Structure):
    """penstock::simulated::Settings."""

    _fields_ = [
        ("seed", c_uint64),
        ("devices", c_int),
        ("memory_bytes", c_uint64),
        ("driver", c_int),
        ("early", c_double),
        ("abort_on_misuse", c_bool),
    ]


class _Waits(ctypes.Structure):
    """penstock::simulated::Waits."""

    _fields_ = [(f"kind_{number}", c_uint64) for number in range(7)]


def _function(*arguments: Any) -> Any:
    return CFUNCTYPE(c_int32, *arguments)


class _Table(ctypes.Structure):
    """penstock_device_table."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("device_type", c_int32),
        ("reserved", c_int32),
        ("error_text", CFUNCTYPE(c_char_p, c_int32)),
        ("device_count", _function(POINTER(c_int32), POINTER(c_char_p))),
        ("properties", _function(c_int32, c_void_p)),
        ("stream_create", _function(c_int32, c_int32, POINTER(c_void_p))),
        ("stream_destroy", _function(c_int32, c_void_p)),
        ("stream_wait", _function(c_int32, c_void_p)),
        ("event_create", _function(c_int32, POINTER(c_void_p))),
        ("event_destroy", _function(c_int32, c_void_p)),
        ("event_record", _function(c_int32, c_void_p, c_void_p)),
        ("event_query", _function(c_int32, c_void_p, POINTER(c_int32))),
        ("event_wait", _function(c_int32, c_void_p, c_void_p)),
        ("copy_to_device", _function(c_int32, c_void_p, c_void_p, c_uint64, c_void_p)),
        ("copy_to_host", _function(c_int32, c_void_p, c_void_p, c_uint64, c_void_p)),
        ("copy_on_device", _function(c_int32, c_void_p, c_void_p, c_uint64, c_void_p)),
        ("allocate", _function(c_int32, c_uint64, POINTER(c_void_p))),
        ("free", _function(c_int32, c_void_p)),
        ("host_allocate", _function(c_int32, c_uint64, POINTER(c_void_p))),
        ("host_free", _function(c_int32, c_void_p)),
    ]


class SimulatedDevice:
    """The first simulated device of this process, with a current stream as in torch."""

    def __init__(self) -> None:
        library = ctypes.CDLL(str(c.library().path.parent / TABLE_FILE))
        self._table = _Table.in_dll(library, "penstock_device")
        self._reset = library._ZN8penstock9simulated5resetERKNS0_8SettingsE
        self._lose = library._ZN8penstock9simulated11lose_deviceEii
        self._waits = library._ZN8penstock9simulated5waitsEv
        self._waits.restype = _Waits
        self._queued = library._ZN8penstock9simulated6queuedEv
        self._queued.restype = c_uint64
        self._begins: dict[int, int] = {}  # bytes of device memory, by address
        self.used: list[tuple[int, int]] = []  # address and stream: used_by_current_stream
        self.current = 0

    def begin(self, seed: int) -> None:
        """Resets the device. Work then runs in a random order from `seed`. Nothing of the device
        may be in use."""
        self._reset(byref(_Settings(seed, 1, 1 << 30, 0, 0.0, True)))
        self._begins.clear()
        self.used.clear()
        self.current = 0

    def lose(self) -> None:
        """Every later call to the device fails."""
        self._lose(0, 719)

    def waits(self) -> int:
        """The number of times that a thread of this process has waited for the device."""
        found = self._waits()
        return sum(getattr(found, name) for name, _ in _Waits._fields_)

    def queued(self) -> int:
        """The amount of work in all streams that has not run. Waits for other streams count too."""
        return self._queued()

    # ---- streams ----

    def stream(self) -> int:
        """A new stream, which has no order with other streams."""
        return self._made(self._table.stream_create, 0)

    def wait(self, stream: int, other: int) -> None:
        """Makes later work on `stream` wait for the present work on `other`."""
        event = c_void_p()
        self._call(self._table.event_create, byref(event))
        self._call(self._table.event_record, event, other)
        self._call(self._table.event_wait, stream, event)

    @contextmanager
    def on(self, stream: int) -> Iterator[None]:
        """In this block `stream` is the current one."""
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    # ---- memory ----

    def tensor(self, shape: Sequence[int], address: int = 0) -> torch.Tensor:
        """A float32 tensor in memory of the device, which the host must not touch. `address` 0: in
        new memory."""
        address = address or self.memory(shape)
        held = (ctypes.c_float * math.prod(shape)).from_address(address)
        return torch.frombuffer(held, dtype=torch.float32).view(*shape)

    def memory(self, shape: Sequence[int]) -> int:
        """The address of new memory of the device for a float32 tensor."""
        n_bytes = 4 * math.prod(shape)
        address = self._made(self._table.allocate, n_bytes)
        self._begins[address] = n_bytes
        return address

    def holds(self, tensor: torch.Tensor) -> bool:
        address = tensor.data_ptr()
        return any(begin <= address < begin + size for begin, size in self._begins.items())

    def write(self, address: int, values: torch.Tensor) -> None:
        """Queues a copy of `values` on the current stream. The device makes the copy as late as it
        can."""
        pinned = self._made(self._table.host_allocate, 4 * values.numel())
        ctypes.memmove(pinned, values.contiguous().data_ptr(), 4 * values.numel())
        self._call(self._table.copy_to_device, address, pinned, 4 * values.numel(), self.current)

    def read(self, address: int, shape: Sequence[int]) -> torch.Tensor:
        """The values at this address after the work on the current stream. Waits for this work."""
        n_bytes = 4 * math.prod(shape)
        pinned = self._made(self._table.host_allocate, n_bytes)
        self._call(self._table.copy_to_host, pinned, address, n_bytes, self.current)
        self._call(self._table.stream_wait, self.current)
        copied = bytearray(ctypes.string_at(pinned, n_bytes))
        return torch.frombuffer(copied, dtype=torch.float32).view(*shape)

    def _made(self, function: Callable[..., int], argument: int) -> int:
        made = c_void_p()
        self._call(function, argument, byref(made))
        return made.value or 0

    def _call(self, function: Callable[..., int], *arguments: Any) -> None:
        error = function(0, *arguments)
        assert error == 0, self._table.error_text(error)


def pretend(device: SimulatedDevice) -> None:
    """From now on torch's tensors over the device's memory count as tensors of CUDA."""

    def used(tensor: torch.Tensor) -> None:
        device.used.append((tensor.data_ptr(), device.current))

    devices.place_of = lambda tensor: Place(c.DEVICE_CUDA, 0) if device.holds(tensor) else HOST
    devices.current_stream = lambda tensor: device.current
    devices.used_by_current_stream = used
    devices.refuse_capture = devices.refuse_capture_of_updates = lambda: None
    devices.future_of = lambda tensor: torch.futures.Future()
    devices.later = lambda flag: lambda: bool(flag)
