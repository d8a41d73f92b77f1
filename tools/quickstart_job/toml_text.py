"""Scheme files with a few keys replaced, as TOML text: for optimizers that carry a scheme of their own."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Table = dict[str, Any]

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def load(path: Path) -> Table:
    """The file as nested dictionaries. Errors: ValueError that names the file, OSError."""
    with path.open("rb") as file:
        try:
            return tomllib.load(file)
        except ValueError as error:  # no TOML, or no UTF-8
            raise ValueError(f"{path}: not valid TOML: {error}") from error


def replaced(table: Table, changes: Mapping[str, Any]) -> Table:
    """A copy of `table` with each dotted key of `changes` set; tables on the way are made."""
    copy: Table = json.loads(json.dumps(table))
    for dotted, value in changes.items():
        *path, last = dotted.split(".")
        place = copy
        for step in path:
            place = place.setdefault(step, {})
        place[last] = value
    return copy


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, list):
        return "[" + ", ".join(_value(entry) for entry in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    raise TypeError(f"{value!r} has no TOML form; expected a string, number, boolean, list or table")


def dump(table: Table) -> str:
    """The table as TOML: sections for tables, [[name]] for lists of tables, inline tables below that."""
    lines: list[str] = []

    def write(content: Table, path: tuple[str, ...]) -> None:
        plain = {k: v for k, v in content.items() if not _is_section(v)}
        if path and (plain or not content):
            lines.append(f"[{'.'.join(map(_key, path))}]")
        lines.extend(f"{_key(name)} = {_value(value)}" for name, value in plain.items())
        for name, value in content.items():
            if isinstance(value, dict):
                write(value, (*path, name))
            elif _is_section(value):
                for entry in value:
                    lines.append(f"[[{'.'.join(map(_key, (*path, name)))}]]")
                    lines.extend(f"{_key(k)} = {_value(v)}" for k, v in entry.items())

    write(table, ())
    return "\n".join(lines) + "\n"


def _is_section(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))
