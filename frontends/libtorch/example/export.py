"""Writes scikit-learn's digits or the King James Bible where a C++ program reads them (data.hpp has the forms).

    .venv/bin/python frontends/libtorch/example/export.py digits build/data/digits.bin
    .venv/bin/python frontends/libtorch/example/export.py text build/data/text.bin
"""

from __future__ import annotations

import argparse
import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

from quickstart_job.data import DataError, load_digits, load_text  # noqa: E402


def digits_bytes() -> bytes:
    """Header, float32 pixels of 0 to 1, a byte per label."""
    rows = load_digits()
    pixels = (rows[:, :-1] / 16.0).astype("<f4")
    labels = rows[:, -1].astype("u1")
    return b"DIGITS1\n" + struct.pack("<II", *pixels.shape) + pixels.tobytes() + labels.tobytes()


def text_bytes() -> bytes:
    """Header, a byte per character: its place in the alphabet of the text."""
    text = load_text(ROOT / "build/data/kjv.txt")
    alphabet = bytes(sorted(set(text)))
    code_of = bytes(max(0, alphabet.find(byte)) for byte in range(256))
    return b"TEXT1\n" + struct.pack("<II", len(alphabet), len(text)) + text.translate(code_of)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("digits", "text"))
    parser.add_argument("file", type=Path, help="where they go, for example build/data/digits.bin")
    arguments = parser.parse_args()
    try:
        data = digits_bytes() if arguments.task == "digits" else text_bytes()
        arguments.file.parent.mkdir(parents=True, exist_ok=True)
        arguments.file.write_bytes(data)
    except (DataError, OSError) as error:
        print(f"export: {error}", file=sys.stderr)
        return 1
    print(f"{len(data)} bytes of {arguments.task} in {arguments.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
