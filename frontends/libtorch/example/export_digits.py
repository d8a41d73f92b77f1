"""Writes scikit-learn's digits where a C++ program reads them (data.hpp has the form).

    .venv/bin/python frontends/libtorch/example/export_digits.py build/data/digits.bin
"""

from __future__ import annotations

import argparse
import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

from quickstart_job.data import DataError, load_digits  # noqa: E402


def digits_bytes() -> bytes:
    """Header, float32 pixels of 0 to 1, a byte per label."""
    rows = load_digits()
    pixels = (rows[:, :-1] / 16.0).astype("<f4")
    labels = rows[:, -1].astype("u1")
    return b"DIGITS1\n" + struct.pack("<II", *pixels.shape) + pixels.tobytes() + labels.tobytes()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="where they go, for example build/data/digits.bin")
    file = parser.parse_args().file
    try:
        data = digits_bytes()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    except (DataError, OSError) as error:
        print(f"export_digits: {error}", file=sys.stderr)
        return 1
    print(f"{len(data)} bytes of digits in {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
