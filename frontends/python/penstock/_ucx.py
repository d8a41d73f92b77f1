"""Finds UCX on systems without UCX: in the packages libucx-cu12 or libucx-cu13 of the package index
(the extras `ucx` and `ucx-cuda13`). The loader does not search the folder of these packages.
"""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

# Each library needs the libraries before it.
_LIBRARIES = ("libucs.so.0", "libucs_signal.so.0", "libuct.so.0", "libucp.so.0")


def from_package_index() -> Path | None:
    """The folder of the package's libraries, if the plugin `ucx` needs it. A system's own UCX is
    preferred, because it was built for the system's network and the system's MPI may use it."""
    package = importlib.util.find_spec("libucx")
    if package is None or package.origin is None:
        return None
    try:
        ctypes.CDLL(_LIBRARIES[-1])
    except OSError:
        folder = Path(package.origin).parent / "lib"
        return folder if folder.is_dir() else None
    return None


def load() -> None:
    """Loads the libraries that `from_package_index` finds, before a plugin asks for them by name:
    the loader then uses the loaded ones. Skips a missing file; the plugin then reports it."""
    folder = from_package_index()
    for name in _LIBRARIES if folder else ():
        for file in (folder / name, folder / name.removesuffix(".0")):
            if file.is_file():
                ctypes.CDLL(str(file))
                break
