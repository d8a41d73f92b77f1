"""The settings of a DistributedOptimizer for its exchange of gradients, and scheme arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import _library as c
from penstock._places import find
from penstock.common.process_sets import ProcessSet
from penstock.torch import world
from penstock.torch.checks import has_momentum
from penstock.torch.collectives.reductions import Sum
from penstock.torch.scheme import Scheme


@dataclass(frozen=True)
class Settings:
    """The checked arguments of DistributedOptimizer."""

    compression: Any
    passes: int  # backward passes per step
    op: int  # Average or Sum
    predivide: float
    sparse_as_dense: bool
    process_set: ProcessSet
    scheme: str  # TOML text; empty: the configuration's scheme
    check_parameters: bool

    def flags(self, groups: Sequence[dict[str, Any]]) -> int:
        """The flags of the set for the optimizer of these parameter groups."""
        flags = c.SET_REPORTS_OUTCOME | c.SET_DEFERRED_UPDATE | c.SET_PREVIOUS_UPDATE
        flags |= c.SET_OPTIMIZER_MOMENTUM if has_momentum(groups) else 0
        flags |= c.SET_SUM if self.op == Sum else 0
        return flags


def given_scheme(scheme: Any) -> str:
    """The text of a scheme argument. ValueError for an argument of another type."""
    if isinstance(scheme, (str, os.PathLike, Scheme)):
        return str(scheme)
    raise ValueError(
        f"the scheme is {scheme!r} of type {type(scheme).__name__}, expected the path of a .toml "
        'file, such as "conf/topk-residual.toml", TOML text, penstock.torch.Scheme(compressor='
        '"topk"), or nothing, for the configuration of the run'
    )


def checked(scheme: str) -> str:
    """Returns `scheme` unchanged. ValueError if it is neither TOML text nor a .toml file; mostly it
    is the name of a method."""
    written = "=" in scheme or scheme.lstrip().startswith("[")  # it looks like TOML text
    if scheme and not written and not scheme.endswith(".toml"):
        raise ValueError(
            f"the scheme is {scheme!r}, expected the path of a .toml file, such as "
            '"conf/topk-residual.toml", TOML text, or penstock.torch.Scheme(compressor="topk")'
        )
    return scheme


def scheme_text(scheme: str | Scheme | None) -> str:
    """The TOML text of a scheme argument: the text itself, or the content of a file that ends in
    .toml. If conf/NAME.toml is not in the working directory, the installed file is taken."""
    if scheme is None:
        return ""
    scheme = checked(str(scheme))
    if "\n" not in scheme and scheme.endswith(".toml"):
        installed = None
        if scheme.startswith("conf/") and not Path(scheme).exists():
            installed, _ = find(f"share/penstock/{scheme}", f"share/penstock/{scheme}")
        path = Path(installed or scheme)
        return _of_one_set(path.read_text(encoding="utf-8"), scheme, path)
    return scheme


def _of_one_set(text: str, file: str, path: Path) -> str:
    """Returns `text`, the content of a scheme file for one set; empty if the file opened the run.
    ValueError if another file has a table of the run, because a set cannot change the run."""
    for number, line in enumerate(text.splitlines(), 1):
        table = re.match(r"\s*\[\s*(runtime|transport)\s*[\].]", line)
        if table and world.is_initialized():
            if _is_same_file(path, str(world.report()["configuration"])):
                return ""
            raise ValueError(
                f"{file}:{number}: [{table[1]}] belongs to the run, which hvd.init() has opened "
                f'already; say hvd.init(config="{file}"), or leave hvd.init() out: then the first '
                "backward of a PenstockState opens the run with its file"
            )
    return text


def _is_same_file(path: Path, other: str) -> bool:
    return os.path.exists(other) and os.path.samefile(path, other)


def open_with(scheme: str) -> bool:
    """Opens the runtime with this scheme (TOML text, or the path of a .toml file) as its
    configuration. False if the runtime is open already. Collective over all ranks."""
    if world.is_initialized():
        return False
    if scheme.endswith(".toml") and "\n" not in scheme:
        world.init(config=scheme)
    else:
        world.init(config_text=scheme or None)
    return True
