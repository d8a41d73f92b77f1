"""The C interface of libpenstock for ctypes: finds the library and checks its version.

This module does not depend on a framework. The generated module _runtime_h.py has the names of the
C interface; the classes in common/ keep structures together with the memory that they borrow.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from penstock import _ucx
from penstock._places import find
from penstock._runtime_h import *  # noqa: F403 this module also has the names of the C interface
from penstock._runtime_h import ABI_MAJOR, ABI_MINOR, FUNCTIONS, Counters
from penstock._trust import refusal
from penstock.common.exceptions import exception_from

COUNTER_NAMES = tuple(field[0] for field in Counters._fields_ if field[0] != "struct_size")


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
        for name, (result, types) in FUNCTIONS.items():
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
        error = self.exception_of(status)
        self.error_free(status)
        raise error

    def exception_of(self, status: int) -> Exception:
        """The exception for `status`. The caller still owns the status."""
        return exception_from(self.error_code(status), self.error_message(status).text())


def find_library() -> Path:
    """The path of libpenstock: PENSTOCK_LIBRARY, else beside the package, else in the release build
    of the checkout. ImportError, with the remedy, if there is none."""
    named = os.environ.get("PENSTOCK_LIBRARY")
    if named:
        if not Path(named).is_file():
            raise ImportError(
                f"penstock: PENSTOCK_LIBRARY is {named}, expected an existing file; correct or "
                "unset it"
            )
        real = Path(named).resolve()
        if why := refusal(real):
            raise ImportError(
                f"penstock: PENSTOCK_LIBRARY is {named}, which is not loaded, because {why}: "
                "others could replace code that you run; fix it (chmod go-w, chown) or name "
                "another"
            )
        return real
    found, places = find("lib/libpenstock.so.0", "lib/libpenstock.so")
    if found:
        return found
    raise ImportError(
        "penstock: libpenstock.so was not found in "
        + " or ".join(str(place) for place in places)
        + "; in a checkout tools/setup builds it, or name it in PENSTOCK_LIBRARY"
    )


_library: Library | None = None


def library() -> Library:
    """The library of this process, loaded at the first call. ImportError, with the remedy, if it
    cannot be loaded."""
    global _library
    if _library is None:
        _ucx.load()
        _library = Library(find_library())
    return _library
