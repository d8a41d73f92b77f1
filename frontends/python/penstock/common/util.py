"""The functions of Horovod's common/util that scripts and tests import: questions about the build
of the library, and small helpers."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable

from penstock._library import find_library


def _plugin_directories() -> list[Path]:
    """The folders in which the library looks for plugins if the configuration names none."""
    named = os.environ.get("PENSTOCK_PLUGIN_DIRECTORY", "").split(":")
    beside = find_library().parent
    own = [beside / "penstock" / "plugins", beside.parent / "lib" / "penstock" / "plugins"]
    return [*(Path(one) for one in named if one), *own]


def mpi_built(verbose: bool = False) -> bool:
    """True if the transport over MPI is installed."""
    del verbose  # Horovod's: prints why an extension cannot be loaded; there is none here
    return any((one / "collective-mpi.so").is_file() for one in _plugin_directories())


def gloo_built(verbose: bool = False) -> bool:
    """False: there is no transport over Gloo."""
    del verbose
    return False


def gloo_enabled() -> bool:
    """False: there is no transport over Gloo."""
    return False


def nccl_built(verbose: bool = False) -> int:
    """Horovod's version code of NCCL. Returns 0, because Horovod's operations here do not use
    NCCL."""
    del verbose
    return 0


def ddl_built(verbose: bool = False) -> bool:
    """False: there is no transport over IBM's DDL."""
    del verbose
    return False


def ccl_built(verbose: bool = False) -> bool:
    """False: there is no transport over oneCCL."""
    del verbose
    return False


def cuda_built(verbose: bool = False) -> bool:
    """False: operations copy CUDA tensors through host memory, as Horovod without CUDA does."""
    del verbose
    return False


def rocm_built(verbose: bool = False) -> bool:
    """False: tensors of ROCm are copied through host memory."""
    del verbose
    return False


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """True if the frontend for a framework can be imported: for "torch" if torch is installed, else
    False."""
    del verbose
    return ext_base_name == "torch" and importlib.util.find_spec("torch") is not None


def is_iterable(value: Any) -> bool:
    """True if `value` can be iterated over."""
    return isinstance(value, Iterable)


@contextmanager
def env(**values: str | None) -> Iterator[None]:
    """Sets environment variables for a block; None removes a variable. Restores them at the end."""
    before = {name: os.environ.get(name) for name in values}
    try:
        _set_environment(values)
        yield
    finally:
        _set_environment(before)


def _set_environment(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _cache(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function` with a cache of its results, by arguments."""
    return functools.lru_cache(maxsize=None)(function)
