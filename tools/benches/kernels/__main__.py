"""python -m benches.kernels LIBRARY [--family NAME ...]: prints one JSON line with all rows. One thread; see rows.py."""

from __future__ import annotations

import argparse
import json
import sys

import torch

from benches.kernels.rows import World, families, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library")
    parser.add_argument("--elements", type=int, default=1 << 24)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--family", action="append", help="only these")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    world = World(arguments.library, arguments.elements)
    results = []
    for name, rows in families():
        if arguments.family and name not in arguments.family:
            continue
        for row in rows(world):
            print(f"[bench] {row.what}", file=sys.stderr)
            results.append({"family": name, **run(row, world, arguments.rounds)})
    print(json.dumps({"elements": arguments.elements, "rounds": arguments.rounds, "rows": results}))


if __name__ == "__main__":
    main()
