#!/usr/bin/env python3
"""Counts lines of code by room: no comments, no blank lines, no tests and what only they use.

Usage: tools/ci/count_lines.py [--root DIRECTORY] [--json] [FOLDER...]. Without folders: core/. One line per room, then the sum.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from check_includes import INCLUDING, is_test  # noqa: E402

# Text in quotes comes first: what looks like a comment there is none.
_TOKEN = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', re.DOTALL)


def code_lines(text: str) -> int:
    """Lines of a source in C or C++ on which something is left without its comments."""
    left = _TOKEN.sub(lambda match: re.sub(r"[^\n]", "", match[0]) if match[0].startswith("/") else match[0], text)
    return sum(1 for line in left.splitlines() if line.strip())


def by_room(root: Path, folders: list[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for folder in folders:
        for file in sorted((root / folder).rglob("*")):
            path = file.relative_to(root).as_posix()
            if file.suffix in INCLUDING and not is_test(path):
                room = str(Path(path).parent)
                counts[room] = counts.get(room, 0) + code_lines(file.read_text(encoding="utf-8"))
    return counts


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", default=["core"])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    counts = by_room(options.root, options.folders)
    if options.json:
        print(json.dumps(counts))
        return 0
    for room, lines in counts.items():
        print(f"{lines:7} {room}")
    print(f"{sum(counts.values()):7} in all")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
