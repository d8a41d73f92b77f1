#!/usr/bin/env python3
"""Lists the texts that users can see: errors, warnings, lines of the log, help, and summaries of keys and options.

A text is a string of at least four words in a source of the runtime, the plugins, the frontends or the command; strings
that the compiler joins are one text. Texts of tests, benches and tools for developers are left out.

Usage: tools/ci/list_messages.py [--rough] [FILE...]. Prints FILE:LINE: TEXT. --rough: only texts that check_pages.py would
count, the roughest first.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from check_pages import places  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
WHERE = ("core", "plugins", "sdk", "frontends", "tools/penstock")
NOT_SEEN = re.compile(r"_test\.|/tests?/|/testing|_testing\.|/test_|/example|\.cuh?$")
LEAST_WORDS = 4

_C_STRINGS = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*')
_C_COMMENTS = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


def is_text(text: str) -> bool:
    return len(re.findall(r"[A-Za-z]{2,}", text)) >= LEAST_WORDS and " " in text


def of_c(source: str) -> Iterator[tuple[int, str]]:
    without = _C_COMMENTS.sub(lambda m: m[1] or re.sub(r"[^\n]", " ", m[0]), source)
    for found in _C_STRINGS.finditer(without):
        parts = re.findall(r'"((?:[^"\\\n]|\\.)*)"', found[0])
        yield source.count("\n", 0, found.start()) + 1, "".join(parts).replace('\\"', '"').replace("\\n", " ")


def of_python(source: str) -> Iterator[tuple[int, str]]:
    """Without docstrings: users read them in another place."""
    tree = ast.parse(source)
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    within = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents | within:
            yield node.lineno, node.value


def texts_of(path: Path) -> list[tuple[int, str]]:
    source = path.read_text(encoding="utf-8")
    found = of_python(source) if path.suffix == ".py" else of_c(source)
    return sorted((line, " ".join(text.split())) for line, text in found if is_text(text))


def sources() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *WHERE], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in listed if name.endswith((".py", ".cpp", ".hpp", ".h")) and not NOT_SEEN.search(name)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rough", action="store_true", help="only texts that check_pages.py would count")
    parser.add_argument("files", nargs="*", metavar="FILE", type=Path)
    options = parser.parse_args()
    rows = [(places(text) if options.rough else 0, path, line, text) for path in options.files or sources() for line, text in texts_of(path)]
    if options.rough:
        rows = sorted((row for row in rows if row[0]), key=lambda row: -row[0])
    for _, path, line, text in rows:
        print(f"{path.resolve().relative_to(ROOT)}:{line}: {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
