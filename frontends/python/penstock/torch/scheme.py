"""A scheme written in Python instead of a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


class Scheme:
    """A compression scheme: names a compressor, a memory, a collective and a scheduler, like a
    .toml file.

        Scheme(compressor="topk", memory="residual",
               options={"compressor.topk": {"density": 0.01}},
               rules=[{"match": {"dims": 1}, "compressor": "none"}])

    options: the tables of the plugins, by table name. rules, switches: the tables [[rule]] and
    [[switch]], in their order. keys: the keys of [scheme]. Omitted keys have the defaults of a
    file. ``str()`` gives the TOML text. The scheme is checked at its use, with the errors of a
    file with that text.
    """

    def __init__(
        self,
        *,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        rules: Sequence[Mapping[str, Any]] = (),
        switches: Sequence[Mapping[str, Any]] = (),
        **keys: Any,
    ) -> None:
        tables = [("[scheme]", keys)]
        tables += [(f"[{name}]", table) for name, table in (options or {}).items()]
        tables += [("[[rule]]", rule) for rule in rules]
        tables += [("[[switch]]", switch) for switch in switches]
        self._text = "\n".join(
            "\n".join([title, *(f"{key} = {_toml(value)}" for key, value in table.items()), ""])
            for title, table in tables
        )

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<Scheme\n{self._text}>"


def _toml(value: Any) -> str:
    """The TOML text of a value. ValueError for a type that TOML does not have."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    if isinstance(value, (bool, str)):
        return json.dumps(value)  # JSON and TOML share these words and escapes
    if isinstance(value, (int, float)):
        return repr(value)
    raise ValueError(
        f"a scheme has the value {value!r} of type {type(value).__name__}, expected a bool, a "
        "number, text, or a list or mapping of these"
    )
