"""What the structures of the C door are made from; _runtime_h.py has them."""

from __future__ import annotations

import ctypes
import struct
from ctypes import POINTER, Structure, c_char, c_char_p


class Sized(Structure):
    """A structure whose first field, `struct_size`, is its own size: set when it is made.

    One that borrows memory from Python objects must be kept together with them."""

    def __init__(self, **fields: object) -> None:
        super().__init__(**fields)
        self.struct_size = ctypes.sizeof(self)


class Text(Structure):
    """Borrowed UTF-8 text: a pointer `data` and a `size`."""

    @classmethod
    def of(cls, text: str) -> Text:
        """A view of `text`; the encoded bytes live as long as the returned object."""
        # Of a path that is no UTF-8 Python's text has the bytes in a form of its own.
        encoded = text.encode("utf-8", "surrogateescape")
        # cast() keeps a reference to the bytes in the pointer, and the structure keeps one to the
        # pointer.
        return cls(ctypes.cast(c_char_p(encoded), POINTER(c_char)), len(encoded))

    def text(self) -> str:
        """A copy of what the view shows."""
        if not self.size:
            return ""
        return ctypes.string_at(self.data, self.size).decode("utf-8", "replace")


def packer(structure: type[Structure]) -> struct.Struct:
    """Packs all fields of a structure at once, pointers as addresses: many times as fast as setting
    them one by one."""
    packed = struct.Struct("@" + "".join(_formats(structure)))
    assert packed.size == ctypes.sizeof(structure), f"{structure.__name__} has gaps"
    return packed


def _formats(structure: type[Structure]) -> list[str]:
    found: list[str] = []
    for _, kind in structure._fields_:  # type: ignore[misc]
        if issubclass(kind, Structure):
            found += _formats(kind)
        else:
            code = kind._type_  # type: ignore[attr-defined]  # a letter, or what a pointer points at
            found.append(code if isinstance(code, str) else "P")
    return found
