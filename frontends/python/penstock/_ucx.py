"""UCX where the system has none: from the packages libucx-cu12 or libucx-cu13 of the package index
(the extras `ucx` and `ucx-cuda13`), whose libraries lie where the loader does not look.
"""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

# Each needs those before it.
_LIBRARIES = ("libucs.so.0", "libucs_signal.so.0", "libuct.so.0", "libucp.so.0")


def from_package_index() -> Path | None:
    """The folder of the package's libraries, where the plugin `ucx` needs it: a system's own UCX is
    preferred, for it knows the network that it was installed for, and its MPI may be linked to it."""
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
    """Loads what `from_package_index` finds, before a plugin asks for it by name: the loader then
    takes what is loaded already. A file that is missing is left out, and the plugin says so."""
    folder = from_package_index()
    for name in _LIBRARIES if folder else ():
        for file in (folder / name, folder / name.removesuffix(".0")):
            if file.is_file():
                ctypes.CDLL(str(file))
                break
