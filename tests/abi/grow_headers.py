#!/usr/bin/env python3
"""Copies the public headers and lets every struct that may grow do so: one more field, `future`, at its end.

    grow_headers.py FOLDER        writes FOLDER/penstock/*.h
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/ci"))

from abi_headers import embedded_structs, include_name, public_headers, read_headers  # noqa: E402


def main() -> int:
    headers = read_headers()
    fixed = embedded_structs(headers)
    growing = {struct.name for header in headers for struct in header.structs if struct.grows} - fixed
    target = Path(sys.argv[1]) / "penstock"
    grown = set()
    for path in public_headers():
        text = path.read_text()
        for name in growing:
            text, n = re.subn(rf"^\}} {name};", f"  uint64_t future;\n}} {name};", text, flags=re.MULTILINE)
            grown |= {name} if n else set()
        copy = target / include_name(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text)
    if missing := growing - grown:
        print(f"grow_headers: found no end of {', '.join(sorted(missing))}", file=sys.stderr)
        return 1
    print(f"{len(grown)} structs grown, {len(fixed)} held by value and left alone: {', '.join(sorted(fixed))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
