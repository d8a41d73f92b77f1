"""Where a piece is worked on is asked of its place alone: files of core/bucket know no device.

What a device adds lives in core/bucket/on_device; the rest calls a WorkPlace (core/bucket/work_place.hpp) or adds the stages of a
Placement. check_includes.py runs it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

ROOM = PurePosixPath("core/bucket")

_DEVICE = re.compile(
    r"\b(is_on_device|is_direct|Device[A-Z]\w*|Device|Stream|Event|Stopwatch|Residents?|Mirror|Staging|PinnedMemory|penstock_device\w*)\b"
    r"|core/device/"
)


def check(files: Mapping[str, str], is_test: Mapping[str, bool]) -> list[str]:
    """Violations among files, given as path in the repository -> text; `is_test`: whether a path is one of a test."""
    violations = []
    for path in sorted(files):
        if PurePosixPath(path).parent != ROOM or is_test[path]:
            continue
        for number, line in enumerate(files[path].splitlines(), 1):
            found = _DEVICE.search(line.split("//", 1)[0])
            if found is not None:
                violations.append(
                    f"{path}:{number}: names {found[0]}, which only core/bucket/on_device may: ask the piece's WorkPlace, or give its "
                    "Placement a stage"
                )
    return violations
