"""Named operations and tensors of the C interface, for frontends of any framework."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from ctypes import POINTER, byref, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any, NamedTuple

from penstock import _library as c
from penstock._structures import packer
from penstock.common.devices import HOST, Place


class TensorView:
    """A contiguous tensor for the C side. `owner` is the object that keeps the memory alive; `data`
    may change."""

    __slots__ = ("struct", "reference", "shape", "owner")

    def __init__(
        self,
        shape: Sequence[int],
        dtype: int,
        data: int = 0,
        owner: Any = None,
        place: Place = HOST,
    ) -> None:
        self.shape = (c_int64 * max(1, len(shape)))(*shape)
        numel = 1
        for extent in shape:
            numel *= extent
        self.struct = c.Tensor(
            data=data or None,
            shape=ctypes.cast(self.shape, POINTER(c_int64)),
            n_dims=len(shape),
            numel=numel,
            dtype=dtype,
            device_type=place.device_type,
            device_id=place.device_id,
        )
        self.reference = ctypes.pointer(self.struct)
        self.owner = owner

    def point_at(self, data: int, owner: Any) -> None:
        """Moves the view to other memory of equal shape and type."""
        self.struct.data = data or None
        self.owner = owner


class Memory(NamedTuple):
    """A contiguous tensor of an operation. `owner` is the object that keeps the memory alive."""

    shape: Sequence[int]
    dtype: int
    address: int
    owner: Any


class Wish(NamedTuple):
    """A named operation to start.

    output: the memory for the result, which may be `input`; None: `Operation.result` returns it.
    ranks: world ranks that take part, ascending; none: all ranks.
    splits: for an all-to-all, the number of rows for each rank; none: equal parts.
    """

    name: str
    pattern: int
    input: Memory | None
    output: Memory | None = None
    ranks: Sequence[int] = ()
    splits: Sequence[int] = ()
    prescale: float = 1.0
    postscale: float = 1.0
    reduction: int = 0
    root: int = 0
    average: int = 0


class Operation:
    """A named operation under way. Keeps its tensors alive until it is released."""

    def __init__(self, library: c.Library, wish: Wish, handle: int) -> None:
        self.library = library
        self.name = wish.name
        self._memory = (wish.input, wish.output)
        self._handle = c_void_p(handle)

    def poll(self) -> bool:
        """True if a wait would return at once."""
        done = c_uint32()
        self.library.check(self.library.operation_poll(self._handle, byref(done)))
        return bool(done.value)

    def wait(self) -> None:
        """Waits until the operation is done. Raises its error if it failed."""
        self.library.check(self.library.operation_wait(self._handle))

    def result(self) -> tuple[int, int, list[int]]:
        """Returns the address and the size in bytes of the result, and the number of rows from each
        rank. Call it after `wait`, for an operation without an output.

        The memory belongs to the operation; `release` frees it.
        """
        data, size, rows, n_rows = c_void_p(), c_uint64(), POINTER(c_uint64)(), c_uint64()
        self.library.check(
            self.library.operation_result(
                self._handle, byref(data), byref(size), byref(rows), byref(n_rows)
            )
        )
        return data.value or 0, size.value, [rows[i] for i in range(n_rows.value)]

    def release(self) -> None:
        """Frees the operation; waits first if it is pending. A second call does nothing."""
        handle, self._handle = self._handle, c_void_p()
        if handle:
            self.library.operation_release(handle)
        self._memory = (None, None)


def submit(library: c.Library, runtime: c_void_p, wishes: Sequence[Wish]) -> list[Operation]:
    """Starts all given operations or none, with one call of the C interface. With a call for each
    operation, other threads could start operations in between."""
    arguments = _Arguments()
    declarations = b"".join([arguments.declare(wish) for wish in wishes])
    handles = (c_void_p * len(wishes))()
    library.check(
        library.operations_submit(
            runtime,
            ctypes.cast(declarations, POINTER(c.OperationDeclaration)),
            len(wishes),
            handles,
        )
    )
    return [Operation(library, wish, handle) for wish, handle in zip(wishes, handles)]


_TENSOR = packer(c.Tensor)
_DECLARATION = packer(c.OperationDeclaration)


class _Arguments:
    """The memory that declarations borrow. It must live until the runtime has copied it."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def declare(self, wish: Wish) -> bytes:
        name = wish.name.encode("utf-8")
        source = self._tensor(wish.input)
        target = source if wish.output is wish.input else self._tensor(wish.output)
        return _DECLARATION.pack(
            _DECLARATION.size,
            self._address(name),
            len(name),
            source,
            target,
            self._numbers("Q", wish.splits),
            len(wish.splits),
            self._numbers("I", wish.ranks),
            len(wish.ranks),
            wish.prescale,
            wish.postscale,
            wish.pattern,
            wish.reduction,
            wish.root,
            wish.average,
        )

    def _tensor(self, memory: Memory | None) -> int:
        if memory is None:
            return 0
        shape = memory.shape
        return self._address(
            _TENSOR.pack(
                _TENSOR.size,
                memory.address,
                self._numbers("q", shape),
                0,
                len(shape),
                math.prod(shape),
                memory.dtype,
                c.DEVICE_CPU,
                0,
                0,
            )
        )

    def _numbers(self, code: str, values: Sequence[int]) -> int:
        return self._address(struct.pack(f"@{len(values)}{code}", *values)) if values else 0

    def _address(self, data: bytes) -> int:
        self._kept.append(data)
        return ctypes.cast(data, c_void_p).value or 0
