#!/usr/bin/env python3
"""Checks that the core knows no plugin by name: none stands in a text of core/, tests apart.

A message that names a plugin asks the registry which ones there are (core/fit/offers.hpp). What a configuration means where
it names none is data, in core/config/defaults.hpp alone. check_includes.py runs this check with its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

# The one file of data, with the defaults of the configuration.
DATA = "core/config/defaults.hpp"

# Names that are also words of English, of the configuration or of its types: they count where a text quotes them as the
# value of a key that names a plugin.
WORDS = {
    *("auto", "none", "borrowed", "loopback", "momentum", "threshold", "natural", "optimal", "partial", "sketch", "horovod"),
    *("int8", "fp16", "bf16", "residual", "fusion"),
}

_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
_PLUGIN = re.compile(r"penstock_add_plugin\(\s*([a-z]+)\s+([a-z0-9_-]+)")
_KEY = re.compile(r"(?:compressor|memory|collective|transport|scheduler|transport\.\w+)\s*=\s*\[?\s*\\?[\"'`]?$")


def plugin_names(files: Mapping[str, str]) -> set[str]:
    """Names of the plugins of this repository, given its files as path -> text, CMakeLists.txt among them."""
    lists = (text for path, text in files.items() if path.startswith("plugins/") and path.endswith("CMakeLists.txt"))
    return {name for text in lists for _, name in _PLUGIN.findall(text)}


def _named_in(literal: str, names: set[str]) -> Iterator[str]:
    for found in re.finditer(r"(?<![\w-])[a-z][\w-]*(?![\w-])", literal):
        name = found[0]
        if name not in names:
            continue
        if name not in WORDS or _KEY.search(literal[: found.start()]):
            yield name


def check(files: Mapping[str, str], names: set[str]) -> list[str]:
    """Violations among `files`, given as path -> text, in order of paths and lines."""
    violations: list[str] = []
    for path in sorted(files):
        pure = PurePosixPath(path)
        is_test = pure.stem.endswith(("_test", "_testing")) or pure.stem == "testing"
        if pure.parts[0] != "core" or pure.suffix not in (".hpp", ".cpp") or path == DATA or is_test:
            continue
        for number, line in enumerate(files[path].splitlines(), start=1):
            if line.lstrip().startswith(("#", "//")):
                continue
            for literal in _LITERAL.findall(line):
                violations += [
                    f'{path}:{number}: names the plugin "{name}"; ask the registry (core/fit/offers.hpp), or put a default into {DATA}'
                    for name in _named_in(literal, names)
                ]
    return violations
