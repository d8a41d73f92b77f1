"""Reads the public C headers: structs with their fields, constants, functions.

The headers are regular on purpose (one declaration per statement, no macros inside structs), so a small reader is
enough; what it does not understand is an error, never skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SDK_HEADERS = REPOSITORY / "sdk/include/penstock"
RUNTIME_HEADER = REPOSITORY / "core/include/penstock/runtime.h"
# Attributes and platform switches: no part of the layout.
DECORATIONS = {"PENSTOCK_EXPORT", "PENSTOCK_API"}


class HeaderError(ValueError):
    """A header holds something that the reader does not understand; the message quotes it."""


@dataclass
class Field:
    name: str
    declaration: str  # as in the header, without the semicolon


@dataclass
class Struct:
    name: str
    fields: list[Field] = field(default_factory=list)

    @property
    def grows(self) -> bool:
        return any(member.name == "struct_size" for member in self.fields)


@dataclass
class Function:
    name: str
    declaration: str


@dataclass
class Header:
    path: Path
    constants: dict[str, str] = field(default_factory=dict)  # name -> the expression that is its value
    structs: list[Struct] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    callbacks: list[Function] = field(default_factory=list)  # typedefs of function pointers


def public_headers() -> list[Path]:
    """All of them, those of the SDK first, in alphabetical order; drafts last, whose numbers stay taken."""
    return [*sorted(SDK_HEADERS.glob("*.h")), RUNTIME_HEADER, *sorted(SDK_HEADERS.glob("draft/*.h"))]


def include_name(path: Path) -> str:
    """As in #include <penstock/NAME>."""
    return str(path).rsplit("/penstock/", 1)[1]


def read_headers() -> list[Header]:
    return [read_header(path) for path in public_headers()]


def embedded_structs(headers: list[Header]) -> set[str]:
    """Structs that others hold by value: one more field in them would move their neighbours, so they never grow."""
    structs = [struct for header in headers for struct in header.structs]
    names = {struct.name for struct in structs}
    return {
        match.group(1)
        for struct in structs
        for member in struct.fields
        if (match := re.fullmatch(r"(\w+)\s+\w+", member.declaration)) and match.group(1) in names
    }


def read_header(path: Path) -> Header:
    header = Header(path)
    text = re.sub(r"/\*.*?\*/", " ", path.read_text(), flags=re.DOTALL)
    text = _take_directives(text, header)
    for statement in _statements(text):
        _read_statement(statement, header)
    return header


def _take_directives(text: str, header: Header) -> str:
    """Takes the preprocessor's lines out; numbers defined by them are constants."""
    kept = []
    for line in text.replace("\\\n", " ").splitlines():
        if not line.lstrip().startswith("#"):
            kept.append(line)
        elif match := re.match(r"#define (PENSTOCK_\w+)\s+(0x[0-9a-fA-F]+u?|\d+u?)\s*$", line):
            header.constants[match.group(1)] = match.group(2)
    return re.sub(r'extern "C" \{|^\}\s*$', "", "\n".join(kept), flags=re.MULTILINE)


def _statements(text: str) -> list[str]:
    """Splits at the semicolons outside braces."""
    found, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if letter == ";" and depth == 0:
            found.append(" ".join(text[start:position].split()))
            start = position + 1
    if text[start:].strip():
        raise HeaderError(f"text after the last declaration: '{text[start:].strip()[:80]}'")
    return [statement for statement in found if statement]


def _read_statement(statement: str, header: Header) -> None:
    statement = " ".join(word for word in statement.split() if word not in DECORATIONS)
    if match := re.fullmatch(r"enum \{(.*)\}", statement):
        parts = [part.partition("=") for part in match.group(1).split(",") if part.strip()]
        header.constants.update({name.strip(): value.strip() for name, _, value in parts})
    elif match := re.fullmatch(r"typedef struct (\w+) \{(.*)\} (\w+)", statement):
        if match.group(1) != match.group(3):
            raise HeaderError(f"{header.path.name}: struct {match.group(1)} is called {match.group(3)}")
        fields = [_read_field(part.strip(), header) for part in match.group(2).split(";") if part.strip()]
        header.structs.append(Struct(match.group(1), fields))
    elif match := re.fullmatch(r"typedef .*\(\*(\w+)\)\(.*\)", statement):
        header.callbacks.append(Function(match.group(1), statement.removeprefix("typedef ")))
    elif re.fullmatch(r"(typedef )?struct \w+( \w+)?", statement) or statement.startswith("extern const "):
        pass  # an opaque handle, a forward declaration, the plugin's one symbol
    elif match := re.fullmatch(r"[\w* ]*?(penstock_\w+)\(.*\)", statement):
        header.functions.append(Function(match.group(1), statement))
    else:
        raise HeaderError(f"{header.path.name}: cannot read '{statement[:100]}'")


def _read_field(declaration: str, header: Header) -> Field:
    for pattern in (r".*?\(\*(\w+)\)\(.*\)", r".*?(\w+)\[\d+\]", r"[^()]*?(\w+)"):
        if match := re.fullmatch(pattern, declaration):
            return Field(match.group(1), declaration)
    raise HeaderError(f"{header.path.name}: cannot read the field '{declaration}'")
