"""Tests whether the runtime accepts tensors on a device in place, for frontends of any framework.

The runtime does so if the table of the device's functions lies beside the library. It loads the
table when a set needs it; if loading fails, it refuses the set on every rank. A frontend that can
copy through host memory instead must know this before it makes the set.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_int32, c_uint64
from pathlib import Path
from typing import NamedTuple

from penstock import _library as c

TABLE_FILE = "libpenstock_device_cuda.so"


class Place(NamedTuple):
    """The place of a tensor: device type and device number, as in the C interface."""

    device_type: int
    device_id: int


HOST = Place(c.DEVICE_CPU, 0)


class _Table(ctypes.Structure):
    """The first fields of penstock_device_table (core/device/device_table.h), which are all that
    this module needs."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("device_type", c_int32),
        ("reserved", c_int32),
        ("error_text", CFUNCTYPE(c_char_p, c_int32)),
        ("device_count", CFUNCTYPE(c_int32, POINTER(c_int32), POINTER(c_char_p))),
    ]


def why_not_in_place(device_id: int) -> str:
    """The reason why the runtime of this process does not accept tensors on this CUDA device in
    place, as a sentence; empty if it accepts them. Loads the table, as the runtime would."""
    file = c.library().path.parent / TABLE_FILE
    if not file.is_file():
        return (
            f"there is no {file}, so this build of Penstock knows the CPU only; build it with "
            "-DPENSTOCK_CUDA=ON"
        )
    try:
        table = _table_of(file)
    except (OSError, ValueError) as error:
        return (
            f"{file} cannot be used ({error}); install the file that belongs to "
            f"{c.library().path}"
        )
    count, why_none = c_int32(), c_char_p()
    error_number = table.device_count(byref(count), byref(why_none))
    if error_number != 0:
        return f"CUDA cannot count its devices: {_text(table.error_text(error_number))}"
    if count.value == 0:
        return f"no CUDA device can be used: {_text(why_none.value)}"
    if device_id >= count.value:
        return (
            f"there is no cuda:{device_id} for Penstock: it sees {count.value} CUDA device(s); "
            "Penstock and the framework must see equal devices"
        )
    return ""


def _table_of(file: Path) -> _Table:
    # ctypes never unloads a library, and the runtime keeps this one too.
    return _Table.in_dll(ctypes.CDLL(str(file)), "penstock_device")


def _text(text: bytes | None) -> str:
    return text.decode("utf-8", "replace") if text else "it gives no reason"
