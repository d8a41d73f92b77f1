"""The C door of libpenstock (penstock/runtime.h) for ctypes: structures, prototypes, and where the
library lies.

Nothing here knows a framework. Every structure carries `struct_size`, set when it is made; a
structure that borrows memory from Python objects must be kept together with them, which is what the
classes in common/runtime.py do.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_int32,
    c_int64,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from penstock.common.exceptions import exception_from

# Element types, devices, patterns, reductions and set flags of the C headers.
FLOAT32, FLOAT16, BFLOAT16, FLOAT64 = 1, 2, 3, 4
INT8, UINT8, INT16, INT32, INT64 = 5, 6, 7, 9, 11
DEVICE_CPU = 1
ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL, BROADCAST, BARRIER = 1, 2, 3, 4, 5, 8
REDUCE_SUM, REDUCE_MIN, REDUCE_MAX, REDUCE_PRODUCT = 1, 2, 3, 4
SET_OPTIMIZER_MOMENTUM = 1 << 0
SET_DEFERRED_UPDATE = 1 << 1
SET_TELLS_OUTCOME = 1 << 3
SET_SUM = 1 << 4
NO_BUCKET = 0xFFFFFFFF

# The ABI this file was written for; the library's must have the same major number and at least this
# minor one.
ABI_MAJOR, ABI_MINOR = 0, 3

BYTES_SINK_SIGNATURE = CFUNCTYPE(None, c_void_p, c_void_p, c_uint64)


class Str(Structure):
    """penstock_str: borrowed UTF-8 text."""

    _fields_ = [("data", POINTER(c_char)), ("size", c_uint64)]

    @classmethod
    def of(cls, text: str) -> Str:
        """A view of `text`; the encoded bytes live as long as the returned object."""
        encoded = text.encode("utf-8")
        # cast() keeps a reference to the bytes in the pointer, and the structure keeps one to the
        # pointer.
        return cls(ctypes.cast(c_char_p(encoded), POINTER(c_char)), len(encoded))

    def text(self) -> str:
        """A copy of what the view shows."""
        if not self.size:
            return ""
        return ctypes.string_at(self.data, self.size).decode("utf-8", "replace")


TEXT_SINK_SIGNATURE = CFUNCTYPE(None, c_void_p, Str)


class _Sized(Structure):
    """A structure whose first field is its own size."""

    def __init__(self, **fields: object) -> None:
        super().__init__(**fields)
        self.struct_size = ctypes.sizeof(self)


class Tensor(_Sized):
    """penstock_tensor."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("data", c_void_p),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("n_dims", c_uint64),
        ("numel", c_uint64),
        ("dtype", c_uint32),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("flags", c_uint32),
    ]


class RuntimeOptions(_Sized):
    """penstock_runtime_options."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("config_path", Str),
        ("config_text", Str),
        ("frontend", Str),
        ("lent_collective", c_void_p),
        ("lent_instance", c_void_p),
    ]


class Topology(_Sized):
    """penstock_topology."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("rank", c_uint32),
        ("size", c_uint32),
        ("local_rank", c_uint32),
        ("local_size", c_uint32),
        ("cross_rank", c_uint32),
        ("cross_size", c_uint32),
    ]


class GradientDeclaration(_Sized):
    """penstock_gradient_declaration."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("name", Str),
        ("shape", POINTER(c_int64)),
        ("n_dims", c_uint64),
        ("dtype", c_uint32),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("given_bucket", c_uint32),
    ]


class SetDeclaration(_Sized):
    """penstock_set_declaration."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("name", Str),
        ("gradients", POINTER(POINTER(GradientDeclaration))),
        ("n_gradients", c_uint64),
        ("ranks", POINTER(c_uint32)),
        ("n_ranks", c_uint64),
        ("scheme", Str),
        ("flags", c_uint32),
        ("reserved", c_uint32),
    ]


class Counters(_Sized):
    """penstock_counters."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("steps", c_uint64),
        ("gradient_bytes", c_uint64),
        ("payload_bytes", c_uint64),
        ("messages", c_uint64),
        ("void_buckets", c_uint64),
        ("wait_us", c_uint64),
        ("allocations", c_uint64),
        ("moved_bytes", c_uint64),
        ("dense_moved_bytes", c_uint64),
    ]


COUNTER_NAMES = tuple(field[0] for field in Counters._fields_ if field[0] != "struct_size")


class OperationDeclaration(_Sized):
    """penstock_operation_declaration."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("name", Str),
        ("input", POINTER(Tensor)),
        ("output", POINTER(Tensor)),
        ("splits", POINTER(c_uint64)),
        ("n_splits", c_uint64),
        ("ranks", POINTER(c_uint32)),
        ("n_ranks", c_uint64),
        ("prescale", c_double),
        ("postscale", c_double),
        ("pattern", c_uint32),
        ("reduction", c_uint32),
        ("root", c_uint32),
        ("average", c_uint32),
    ]


# Functions that return a status (null for success): name -> argument types.
_CALLS = {
    "runtime_open": (POINTER(RuntimeOptions), POINTER(c_void_p)),
    "runtime_topology": (c_void_p, POINTER(Topology)),
    "runtime_report": (c_void_p, c_void_p, TEXT_SINK_SIGNATURE),
    "timeline": (c_void_p, Str),
    "set_create": (c_void_p, POINTER(SetDeclaration), POINTER(c_void_p)),
    "set_learning_rate": (c_void_p, c_uint64, c_double),
    "set_grad_scale": (c_void_p, c_double),
    "set_momentum": (c_void_p,),
    "gradient_ready": (c_void_p, c_uint64, POINTER(Tensor), c_void_p),
    "gradient_absent": (c_void_p, c_uint64, POINTER(Tensor)),
    "wait": (c_void_p, c_uint64),
    "wait_all": (c_void_p,),
    "poll": (c_void_p, c_uint64, POINTER(c_uint32)),
    "set_defers": (c_void_p, POINTER(c_uint32)),
    "backward_end": (c_void_p,),
    "flush": (c_void_p,),
    "step_end": (c_void_p, c_uint32),
    "set_save": (c_void_p, c_void_p, BYTES_SINK_SIGNATURE),
    "set_load": (c_void_p, c_char_p, c_uint64),
    "set_reset": (c_void_p,),
    "set_report": (c_void_p, c_void_p, TEXT_SINK_SIGNATURE),
    "set_counters": (c_void_p, POINTER(Counters)),
    "operation_submit": (c_void_p, POINTER(OperationDeclaration), POINTER(c_void_p)),
    "operation_poll": (c_void_p, POINTER(c_uint32)),
    "operation_wait": (c_void_p,),
    "operation_result": (
        c_void_p,
        POINTER(c_void_p),
        POINTER(c_uint64),
        POINTER(POINTER(c_uint64)),
        POINTER(c_uint64),
    ),
}

# Functions that return nothing.
_NOTICES = {
    "error_free": (c_void_p,),
    "runtime_close": (c_void_p,),
    "abort": (c_void_p, Str),
    "set_destroy": (c_void_p,),
    "operation_release": (c_void_p,),
}


class Library:
    """libpenstock with prototypes. Functions are attributes without the ``penstock_`` prefix."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            loaded = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            raise ImportError(
                f"penstock: {path} could not be loaded: {error}; rebuild it (cmake --preset "
                "release && "
                f"cmake --build --preset release) or name another one in PENSTOCK_LIBRARY"
            ) from error
        try:
            self._declare(loaded)
        except AttributeError as error:
            raise ImportError(
                f"penstock: {path} is not a libpenstock of ABI {ABI_MAJOR}.{ABI_MINOR}: {error}"
            ) from None
        abi = self.abi_version()
        if abi >> 16 != ABI_MAJOR or abi & 0xFFFF < ABI_MINOR:
            raise ImportError(
                f"penstock: {path} has ABI {abi >> 16}.{abi & 0xFFFF}, this package needs "
                f"{ABI_MAJOR}.{ABI_MINOR}; "
                f"rebuild the library or install the package that belongs to it"
            )

    def _declare(self, loaded: ctypes.CDLL) -> None:
        prototypes: list[tuple[str, tuple[Any, ...], Any]]
        prototypes = [(name, types, c_void_p) for name, types in _CALLS.items()]
        prototypes += [(name, types, None) for name, types in _NOTICES.items()]
        prototypes += [
            ("error_code", (c_void_p,), c_uint32),
            ("error_message", (c_void_p,), Str),
            ("version", (), Str),
            ("abi_version", (), c_uint32),
        ]
        for name, types, result in prototypes:
            function = getattr(loaded, "penstock_" + name)
            function.argtypes = types
            function.restype = result
            setattr(self, name, function)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    def check(self, status: int | None) -> None:
        """Raises the exception for `status`, a pointer returned by a call, and frees it. None is
        success."""
        if not status:
            return
        code = self.error_code(status)
        message = self.error_message(status).text()
        self.error_free(status)
        raise exception_from(code, message)


def find_library() -> Path:
    """Where libpenstock lies: PENSTOCK_LIBRARY, else next to the package, else the release build of
    the checkout."""
    named = os.environ.get("PENSTOCK_LIBRARY")
    if named:
        if not Path(named).is_file():
            raise ImportError(
                f"penstock: PENSTOCK_LIBRARY is {named}, expected an existing file; correct or "
                "unset it"
            )
        return Path(named).resolve()
    package = Path(__file__).resolve().parent
    places = [package / "lib" / "libpenstock.so.0"]
    checkout = package.parents[2]
    if (checkout / "CMakePresets.json").is_file():
        places.append(checkout / "build" / "release" / "lib" / "libpenstock.so")
    for place in places:
        if place.is_file():
            return place
    raise ImportError(
        "penstock: libpenstock.so was not found in "
        + " or ".join(str(place) for place in places)
        + "; build it with "
        "'cmake --preset release && cmake --build --preset release', or name it in PENSTOCK_LIBRARY"
    )


_library: Library | None = None


def library() -> Library:
    """The library of this process, loaded at the first call. Raises ImportError with what to do."""
    global _library
    if _library is None:
        _library = Library(find_library())
    return _library
