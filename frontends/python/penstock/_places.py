"""Where what belongs to this package lies: beside its modules in a wheel, or in a checkout's
release build."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def find(in_package: str, in_build: str) -> tuple[Path | None, list[Path]]:
    """The first file that is there, and all places that were looked at.

    in_package: path below the package. in_build: path below build/release of the checkout that the
    package may be part of.
    """
    places = [PACKAGE / in_package]
    checkout = PACKAGE.parents[2]
    if (checkout / "CMakePresets.json").is_file():
        places.append(checkout / "build" / "release" / in_build)
    return next((place for place in places if place.is_file()), None), places
