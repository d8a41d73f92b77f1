"""Where a class of the core lives: in one .cpp, which has a header of its own.

    core/ROOM/NAME.cpp  beside it core/ROOM/NAME.hpp, unless it is a test or a program's main
    a class             the functions of a class of a room are all in one of its .cpp files

check_includes.py runs it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import PurePosixPath

# Rooms and files that do not keep this yet; each leaves the list when it does, and none comes back.
NOT_YET = ("runtime", "control/watch.cpp")

# Files that carry out what a header says that others include, by another way than this one's name.
HEADERS_ELSEWHERE = {
    "core/library/door.cpp": "core/include/penstock/runtime.h",
    "core/library/operations.cpp": "core/include/penstock/runtime.h",
    "core/device/cuda/device_cuda.cpp": "core/device/device_table.h",
}

_MAIN = re.compile(r"^int main\(", re.MULTILINE)
_MEMBER = re.compile(r"((?:[A-Z]\w*::)+)(?:~?\w+|operator\W+)$")


def defined_classes(text: str) -> set[str]:
    """Classes of which the text defines a function outside the class: a line that begins at the margin with its head."""
    classes: set[str] = set()
    for line in text.splitlines():
        head = line
        while (shorter := re.sub(r"<[^<>]*>", "", head)) != head:
            head = shorter
        if not re.match(r"[A-Za-z~]", head) or "(" not in head:
            continue
        found = _MEMBER.search(head.split("(", 1)[0])
        if found is not None:
            classes.add(found[1].removesuffix("::"))
    return classes


def check(files: Mapping[str, str], is_test: Mapping[str, bool]) -> list[str]:
    """Violations among files, given as path in the repository -> text; `is_test`: whether a path is one of a test."""
    violations: list[str] = []
    homes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in sorted(files):
        parts = PurePosixPath(path).parts
        if parts[0] != "core" or not path.endswith(".cpp") or is_test[path] or {parts[1], "/".join(parts[1:])} & {*NOT_YET}:
            continue
        header = HEADERS_ELSEWHERE.get(path, path.removesuffix(".cpp") + ".hpp")
        if header not in files and _MAIN.search(files[path]) is None:
            violations.append(
                f"{path}: has no header of its own, expected {header}; what it defines is a class or a group of functions "
                "with a name, which its header declares"
            )
        for name in defined_classes(files[path]):
            homes[str(PurePosixPath(path).parent), name].append(path)
    for (_, name), paths in sorted(homes.items()):
        if len(paths) > 1:
            violations.append(f"{paths[1]}: class {name} is in {paths[0]} too; a class lives in one .cpp: split it by what it owns")
    return violations
