"""The base classes of the C interface's structures, which _runtime_h.py defines."""

from __future__ import annotations

import ctypes
import struct
from ctypes import POINTER, Structure, c_char, c_char_p


class Sized(Structure):
    """A structure whose first field, `struct_size`, is its own size. The constructor sets it.

    A structure that borrows memory from Python objects must not outlive these objects."""

    def __init__(self, **fields: object) -> None:
        super().__init__(**fields)
        self.struct_size = ctypes.sizeof(self)


class Text(Structure):
    """Borrowed UTF-8 text: a pointer `data` and a `size`."""

    @classmethod
    def of(cls, text: str) -> Text:
        """A view of `text`. The encoded bytes live as long as the returned object."""
        # Python represents a path that is not UTF-8 with surrogates in its text.
        encoded = text.encode("utf-8", "surrogateescape")
        # cast() keeps a reference to the bytes in the pointer, and the structure keeps one to the
        # pointer.
        return cls(ctypes.cast(c_char_p(encoded), POINTER(c_char)), len(encoded))

    def text(self) -> str:
        """A copy of the viewed text."""
        if not self.size:
            return ""
        return ctypes.string_at(self.data, self.size).decode("utf-8", "replace")


def packer(structure: type[Structure]) -> struct.Struct:
    """A packer that writes all fields of a structure at once, pointers as addresses. It is many
    times as fast as setting the fields one by one."""
    packed = struct.Struct("@" + "".join(_formats(structure)))
    assert packed.size == ctypes.sizeof(structure), f"{structure.__name__} has gaps"
    return packed


def _formats(structure: type[Structure]) -> list[str]:
    found: list[str] = []
    for _, kind in structure._fields_:  # type: ignore[misc]
        if issubclass(kind, Structure):
            found += _formats(kind)
        else:
            code = kind._type_  # type: ignore[attr-defined]  # a letter, or the target of a pointer
            found.append(code if isinstance(code, str) else "P")
    return found
