"""Named operations of the C door, and tensors as it sees them, for frontends of any framework."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any

from penstock import _library as c


class TensorView:
    """A contiguous tensor as the C side sees it. `owner` is whatever keeps the memory alive; `data`
    may be moved."""

    __slots__ = ("struct", "reference", "shape", "owner")

    def __init__(self, shape: Sequence[int], dtype: int, data: int = 0, owner: Any = None) -> None:
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
            device_type=c.DEVICE_CPU,
        )
        self.reference = ctypes.pointer(self.struct)
        self.owner = owner

    def point_at(self, data: int, owner: Any) -> None:
        """Moves the view to other memory of the same shape and type."""
        self.struct.data = data or None
        self.owner = owner


class Operation:
    """A named operation under way. Keeps its tensors alive until it is released."""

    def __init__(
        self,
        library: c.Library,
        runtime: c_void_p,
        name: str,
        pattern: int,
        view: TensorView | None,
        output: TensorView | None,
        ranks: Sequence[int],
        splits: Sequence[int],
        fields: dict[str, Any],
    ) -> None:
        self.library = library
        self.name = name
        self._views = (view, output)
        self._handle = c_void_p()
        members = (c_uint32 * max(1, len(ranks)))(*ranks)
        shares = (c_uint64 * max(1, len(splits)))(*splits)
        declaration = c.OperationDeclaration(
            name=c.Str.of(name),
            pattern=pattern,
            ranks=ctypes.cast(members, POINTER(c_uint32)),
            n_ranks=len(ranks),
            splits=ctypes.cast(shares, POINTER(c_uint64)),
            n_splits=len(splits),
            **{"prescale": 1.0, "postscale": 1.0, **fields},
        )
        if view is not None:
            declaration.input = view.reference
        if output is not None:
            declaration.output = output.reference
        library.check(library.operation_submit(runtime, byref(declaration), byref(self._handle)))

    def poll(self) -> bool:
        """True when a wait would return at once."""
        done = c_uint32()
        self.library.check(self.library.operation_poll(self._handle, byref(done)))
        return bool(done.value)

    def wait(self) -> None:
        """Waits until the operation is done; raises what went wrong."""
        self.library.check(self.library.operation_wait(self._handle))

    def result(self) -> tuple[int, int, list[int]]:
        """After `wait`, without an output: address and bytes of the result, and the rows that came
        from each rank.

        The memory belongs to the operation and ends with `release`.
        """
        data, size, rows, n_rows = c_void_p(), c_uint64(), POINTER(c_uint64)(), c_uint64()
        self.library.check(
            self.library.operation_result(
                self._handle, byref(data), byref(size), byref(rows), byref(n_rows)
            )
        )
        return data.value or 0, size.value, [rows[i] for i in range(n_rows.value)]

    def release(self) -> None:
        """Frees the operation, waiting for it if it is pending; twice is fine."""
        handle, self._handle = self._handle, c_void_p()
        if handle:
            self.library.operation_release(handle)
        self._views = (None, None)
