"""Makes ``import horovod.torch`` find Penstock, in this process only. A program must import this
module before any module of Horovod.

This package installs nothing named horovod. It does not change an installed Horovod, but hides it
from this process and prints one line about it.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any

import penstock
from penstock.runner import run

# Horovod's modules that scripts import, and the modules of Penstock that replace them.
_MODULES = {
    "horovod.torch": "penstock.torch",
    "horovod.torch.mpi_ops": "penstock.torch.mpi_ops",
    "horovod.torch.compression": "penstock.torch.compression",
    "horovod.torch.optimizer": "penstock.torch.optimizer",
    "horovod.torch.functions": "penstock.torch.functions",
    "horovod.torch.sync_batch_norm": "penstock.torch.sync_batch_norm",
    "horovod.torch.elastic": "penstock.torch.elastic",
    "horovod.torch.elastic.sampler": "penstock.torch.elastic.sampler",
    "horovod.torch.elastic.state": "penstock.torch.elastic.state",
    "horovod.common": "penstock.common",
    "horovod.common.util": "penstock.common.util",
    "horovod.common.exceptions": "penstock.common.exceptions",
    "horovod.common.process_sets": "penstock.common.process_sets",
    "horovod.runner": "penstock.runner",
    "horovod.runner.util": "penstock.runner.util",
    "horovod.runner.util.threads": "penstock.runner.util.threads",
}


class _NotOffered(importlib.abc.MetaPathFinder):
    """Reports that a module of Horovod is missing, instead of finding an installed Horovod."""

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith("horovod."):
            return None
        raise ModuleNotFoundError(_not_offered(fullname), name=fullname)


def _not_offered(name: str) -> str:
    return (
        f"{name} is not offered: penstock stands for horovod in this process, with horovod.torch, "
        "horovod.common and horovod.runner.util.threads"
    )


def _of_horovod(name: str) -> Any:
    """Raises AttributeError for a name that `horovod` does not have."""
    raise AttributeError(_not_offered(f"horovod.{name}"))


def install() -> None:
    """Registers Penstock's modules under the names of Horovod's modules. A second call does
    nothing. ImportError if another Horovod was imported already."""
    there = sys.modules.get("horovod")
    if there is not None:
        if getattr(there, "__penstock__", False):
            return
        raise ImportError(
            f"horovod was imported from {getattr(there, '__file__', 'elsewhere')} already: import "
            "penstock.horovod_alias first"
        )
    _say_what_is_hidden()
    horovod = ModuleType("horovod", "Penstock under Horovod's name.")
    horovod.__dict__.update(__penstock__=True, __path__=[], __version__=penstock.__version__)
    horovod.__dict__.update(run=run, __getattr__=_of_horovod)
    sys.modules["horovod"] = horovod
    for name, own in _MODULES.items():
        module = importlib.import_module(own)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent == "horovod":
            setattr(horovod, child, module)
    sys.meta_path.insert(0, _NotOffered())


def _say_what_is_hidden() -> None:
    installed = importlib.util.find_spec("horovod")
    if installed is not None:
        where = installed.origin or str(list(installed.submodule_search_locations or []))
        print(f"penstock: stands for horovod here; {where} is not used", file=sys.stderr)


install()
