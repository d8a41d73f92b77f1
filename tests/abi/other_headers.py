#!/usr/bin/env python3
"""Writes the public headers as a newer or an older ABI would have them, for tests of growth.

    other_headers.py --longer FOLDER     every struct that may grow has one more field, `future`, at its end
    other_headers.py --shorter FOLDER    structs end where they ended when they were first published

Both write FOLDER/penstock/*.h. The minor version is one above the present one, or one below it.
"""

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/ci"))

from abi_headers import REPOSITORY, Struct, embedded_structs, include_name, public_headers, read_headers  # noqa: E402

# The last field of each struct in its first published form. Only the host fills these structs. Structs that plugins and
# frontends fill are listed in core/plugin/c_struct.hpp, where the core accepts their first lengths.
FILLED_BY_THE_HOST = {
    "penstock_step": "flags",
    "penstock_world": "size",
    "penstock_collective_traits": "max_in_flight",
    "penstock_section": "dtype",
    "penstock_candidate": "n_rounds",
    "penstock_link": "flags",
    "penstock_model": "flags",
    "penstock_measurement": "world",
}
FILLED_BY_OTHERS = re.compile(r"^PENSTOCK_FIRST_BYTES\((\w+), (\w+)\);", re.MULTILINE)
MINOR = re.compile(r"#define PENSTOCK_ABI_MINOR (\d+)")


def lengthen(text: str, growing: list[Struct]) -> tuple[str, set[str]]:
    """The text with one more field in each struct, and the names of the structs in this text."""
    changed = set()
    for struct in growing:
        text, n = re.subn(rf"^\}} {struct.name};", f"  uint64_t future;\n}} {struct.name};", text, flags=re.MULTILINE)
        changed |= {struct.name} if n else set()
    return text, changed


def shorten(text: str, growing: list[Struct]) -> tuple[str, set[str]]:
    """The text without the fields after the first published end of each struct, and the names of the shortened
    structs."""
    last_fields = FILLED_BY_THE_HOST | dict(FILLED_BY_OTHERS.findall((REPOSITORY / "core/plugin/c_struct.hpp").read_text()))
    changed = set()
    for struct in growing:
        names = [member.name for member in struct.fields]
        last = last_fields.get(struct.name, names[-1])
        if last == names[-1] or f"}} {struct.name};" not in text:
            continue
        start = text.index(f"typedef struct {struct.name} {{")
        end = text.index(f"}} {struct.name};", start)
        # The declaration of the last remaining field, with the comment on its line.
        kept = re.search(rf"^[^/\n]*\b{last}\b[^;]*;.*\n", text[start:end], flags=re.MULTILINE)
        body = text[start : start + kept.end()]
        if body.rfind("/*") > body.rfind("*/"):
            body += text[start + kept.end() : text.index("*/", start + kept.end()) + 2] + "\n"
        text = body.join((text[:start], text[end:]))
        changed.add(struct.name)
    return text, changed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--longer", dest="change", action="store_const", const=lengthen, help="one more field each")
    which.add_argument("--shorter", dest="change", action="store_const", const=shorten, help="as first published")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    longer = options.change is lengthen

    headers = read_headers()
    fixed = embedded_structs(headers)
    growing = [struct for header in headers for struct in header.structs if struct.grows and struct.name not in fixed]
    expected = {struct.name for struct in growing} if longer else set(FILLED_BY_THE_HOST)
    changed = set()
    for path in public_headers():
        text, names = options.change(path.read_text(), growing)
        changed |= names
        copy = options.folder / "penstock" / include_name(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(MINOR.sub(lambda match: f"#define PENSTOCK_ABI_MINOR {int(match[1]) + (1 if longer else -1)}", text))
    if missing := expected - changed:
        print(f"other_headers: found no end of {', '.join(sorted(missing))}", file=sys.stderr)
        return 1
    print(f"{len(changed)} structs {'longer' if longer else 'shorter'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
