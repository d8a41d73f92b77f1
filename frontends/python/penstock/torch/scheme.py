"""A scheme written in Python instead of a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


class Scheme:
    """Names one compressor, memory, collective and scheduler, as a .toml file does.

        Scheme(compressor="topk", memory="residual",
               options={"compressor.topk": {"density": 0.01}},
               rules=[{"match": {"dims": 1}, "compressor": "none"}])

    What is left out is as in a file without it. options: the tables of the plugins by their names;
    rules, switches: the tables [[rule]] and [[switch]], in their order. It is checked where it is
    used: errors are those of the file that ``str()`` of it is.
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
    """ValueError for what TOML has no words for."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    if isinstance(value, (bool, str)):
        return json.dumps(value)  # the same words and escapes in both
    if isinstance(value, (int, float)):
        return repr(value)
    raise ValueError(
        f"a scheme has the value {value!r} of type {type(value).__name__}, expected a bool, a "
        "number, text, or a list or mapping of these"
    )
