"""The gradients of a shipped profile (tools/penstock/plan/profiles): names, shapes, and when backward has each of them ready."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

PROFILES = Path(__file__).resolve().parents[2] / "penstock/plan/profiles"


@dataclass(frozen=True)
class Gradient:
    """`share` is the part of backward, in [0, 1], after which it is ready."""

    name: str
    shape: tuple[int, ...]
    share: float

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def names(folder: Path = PROFILES) -> list[str]:
    """The profiles that are there. A table of costs lies among them."""
    return sorted(path.stem for path in folder.glob("*.csv") if path.stem != "costs")


def read(model: str, folder: Path = PROFILES) -> list[Gradient]:
    """In order of registration. Errors: ValueError with the line that is wrong, OSError without the file.

    Backward goes from the last line to the first and takes each line's part of all work, as `penstock plan` has it; without
    any work all gradients are ready at its end.
    """
    path = folder / f"{model}.csv"
    lines: list[tuple[str, tuple[int, ...], float]] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line or line.startswith("#") or line == "name,shape,work":
            continue
        try:
            name, sides, work = line.split(",")
            lines.append((name, tuple(int(side) for side in sides.split("x")) if sides else (), float(work)))
        except ValueError as error:
            raise ValueError(f"{path}:{number} is {line!r}, expected name,shape,work") from error
    total = sum(work for _, _, work in lines)
    done, gradients = 0.0, []
    for name, shape, work in reversed(lines):
        done += work
        if shape:  # without one it is work alone
            gradients.append(Gradient(name, shape, done / total if total else 1.0))
    return gradients[::-1]
