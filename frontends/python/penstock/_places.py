"""Finds the files that belong to this package: beside its modules in a wheel, or in the release
build of a checkout."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def find(in_package: str, in_build: str) -> tuple[Path | None, list[Path]]:
    """The first existing file, and all places that were searched.

    in_package: path below the package. in_build: path below build/release, if the package is part
    of a checkout.
    """
    places = [PACKAGE / in_package]
    checkout = PACKAGE.parents[2]
    if (checkout / "CMakePresets.json").is_file():
        places.append(checkout / "build" / "release" / in_build)
    return next((place for place in places if place.is_file()), None), places
