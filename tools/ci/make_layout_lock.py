#!/usr/bin/env python3
"""Writes the layout lock of an ABI minor version: what every struct, signature and constant is, for the compiler to check.

    tools/ci/make_layout_lock.py            write tests/abi/layout_MAJOR_MINOR.c and .cpp (once per minor version)
    tools/ci/make_layout_lock.py --check    compare them with the headers; status 1 where they differ

A lock is written when a minor version is opened, checked in and never edited: older locks keep compiling against newer
headers. While the minor version stands, sizes are exact; once it has moved on, structs may have grown at their ends.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from abi_headers import REPOSITORY, SDK_HEADERS, Header, HeaderError, Struct, embedded_structs, read_headers

# They move by themselves.
UNLOCKED_CONSTANTS = {"PENSTOCK_ABI_MINOR"}
EXPRESSIONS = {
    "PENSTOCK_DTYPE_BIT(PENSTOCK_BOOL)",
    "PENSTOCK_PATTERN_BIT(PENSTOCK_SPARSE_ALL_REDUCE)",
    "sizeof(PENSTOCK_PLUGIN_MAGIC)",
}

PREAMBLE = """\
/* Layout lock of ABI {major}.{minor}: offsets, sizes, exact types and values, checked by the compiler.
 *
 * Written by tools/ci/make_layout_lock.py when this minor version was opened. Never edited: a line that no longer
 * compiles means that plugins already built would break. Append a field, take a new name, or open a new major. */
/* clang-format off */
#include <penstock/plugin.h>
#include <penstock/runtime.h>
"""

C_MACROS = """
#define LOCK_THAT(condition, text) _Static_assert(condition, text)
#define LOCK_TYPE(expression, type) _Static_assert(_Generic(&(expression), type*: 1, default: 0), #expression)
#define LOCK_FIELD(owner, field) (((owner*)0)->field)
"""
CXX_MACROS = """
#include <type_traits>

#define LOCK_THAT(condition, text) static_assert(condition, text)
#define LOCK_TYPE(expression, type) static_assert(std::is_same<decltype(expression), type>::value, #expression)
#define LOCK_FIELD(owner, field) owner::field
"""
COMMON_MACROS = """
/* A struct of this size that grows at its end only. */
#define LOCK_GROWING(type, size) \\
  LOCK_THAT(PENSTOCK_ABI_MINOR == {minor} ? sizeof(type) == (size) : sizeof(type) >= (size), #type)
/* A struct that others hold by value, or without struct_size: it never grows. */
#define LOCK_FIXED(type, size) LOCK_THAT(sizeof(type) == (size), #type)
#define LOCK_AT(owner, field, offset) \\
  LOCK_THAT(offsetof(owner, field) == (offset), #owner "." #field); \\
  LOCK_TYPE(LOCK_FIELD(owner, field), lock_##owner##_##field)
#define LOCK_VALUE(constant, value) LOCK_THAT((constant) == (value), #constant)
"""


def abi_version() -> tuple[int, int]:
    text = (SDK_HEADERS / "base.h").read_text()
    major, minor = (
        int(re.search(rf"#define PENSTOCK_ABI_{part} (\d+)", text).group(1)) for part in ("MAJOR", "MINOR")
    )
    return major, minor


def measure(headers: list[Header]) -> dict[str, int]:
    """Sizes, offsets and values, from a C compiler."""
    wanted: dict[str, str] = {}
    for header in headers:
        for struct in header.structs:
            wanted[struct.name] = f"sizeof({struct.name})"
            for member in struct.fields:
                wanted[f"{struct.name}.{member.name}"] = f"offsetof({struct.name}, {member.name})"
        wanted |= {name: name for name in header.constants}
    wanted |= {expression: expression for expression in EXPRESSIONS}
    lines = [f'  printf("%s %lld\\n", "{key.replace(" ", "")}", (long long)({text}));' for key, text in wanted.items()]
    source = "#include <stdio.h>\n#include <penstock/plugin.h>\n#include <penstock/runtime.h>\n"
    source += "int main(void) {\n" + "\n".join(lines) + "\n  return 0;\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "measure")
        includes = [f"-I{REPOSITORY / part}" for part in ("sdk/include", "core/include")]
        subprocess.run(["cc", "-std=c11", *includes, "-x", "c", "-", "-o", program], input=source, text=True, check=True)
        output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return {key: int(value) for key, value in (line.split() for line in output.splitlines())}


def typedef(declaration: str, name: str, alias: str) -> str:
    """The declaration of `name` as the declaration of a type called `alias`."""
    return "typedef " + re.sub(rf"\b{name}\b(?=\)\(|\(|\[|$)", alias, declaration, count=1) + ";"


def lock_struct(struct: Struct, numbers: dict[str, int], fixed: bool) -> list[str]:
    lines = [f"LOCK_{'FIXED' if fixed else 'GROWING'}({struct.name}, {numbers[struct.name]});"]
    for member in struct.fields:
        alias = f"lock_{struct.name}_{member.name}"
        lines += [
            typedef(member.declaration, member.name, alias),
            f"LOCK_AT({struct.name}, {member.name}, {numbers[f'{struct.name}.{member.name}']});",
        ]
    return lines


def make_lock(headers: list[Header], cxx: bool) -> str:
    major, minor = abi_version()
    numbers = measure(headers)
    embedded = embedded_structs(headers)
    text = PREAMBLE.format(major=major, minor=minor) + (CXX_MACROS if cxx else C_MACROS)
    text += COMMON_MACROS.replace("{minor}", str(minor))
    lines = ["", "LOCK_THAT(PENSTOCK_ABI_MINOR >= %d, \"the minor version never goes back\");" % minor]
    for header in headers:
        lines += ["", f"/* ---- {header.path.name} ---- */"]
        lines += [f"LOCK_VALUE({name}, {numbers[name]});" for name in header.constants if name not in UNLOCKED_CONSTANTS]
        for callback in header.callbacks:
            alias = f"lock_{callback.name}"
            lines += ["", typedef(callback.declaration, callback.name, alias)]
            holder = f"lock_{callback.name}_holder"
            lines += [f"extern {callback.name} {holder};", f"LOCK_TYPE({holder}, {alias});"]
        for struct in header.structs:
            lines += ["", *lock_struct(struct, numbers, struct.name in embedded or not struct.grows)]
        for function in header.functions:
            alias = f"lock_{function.name}"
            lines += ["", typedef(function.declaration, function.name, alias), f"LOCK_TYPE({function.name}, {alias});"]
    lines += ["", "/* ---- macros, and the one symbol of a plugin ---- */"]
    lines += [f"LOCK_VALUE({expression}, {numbers[expression]});" for expression in sorted(EXPRESSIONS)]
    lines += ["typedef const penstock_plugin_record lock_penstock_plugin;", "LOCK_TYPE(penstock_plugin, lock_penstock_plugin);"]
    return text + "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args()
    major, minor = abi_version()
    try:
        headers = read_headers()
    except HeaderError as error:
        print(f"make_layout_lock: {error}", file=sys.stderr)
        return 1
    for suffix in ("c", "cpp"):
        path = REPOSITORY / f"tests/abi/layout_{major}_{minor}.{suffix}"
        text = make_lock(headers, cxx=suffix == "cpp")
        shown = path.relative_to(REPOSITORY)
        if options.check:
            if not path.exists():
                print(f"make_layout_lock: {shown} is missing; write it with tools/ci/make_layout_lock.py", file=sys.stderr)
                return 1
            if path.read_text() != text:
                print(
                    f"make_layout_lock: the headers differ from {shown}. Before the first release of ABI {major}.{minor} "
                    "delete and write it again; after it, raise PENSTOCK_ABI_MINOR (for appended fields only) and write "
                    "the lock of the new minor version",
                    file=sys.stderr,
                )
                return 1
        elif path.exists() and path.read_text() != text:
            print(f"make_layout_lock: {shown} exists and differs; a lock is never rewritten", file=sys.stderr)
            return 1
        else:
            path.write_text(text)
            print(f"{shown}: {text.count(chr(10))} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
