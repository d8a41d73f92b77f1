"""Runs a script over torch's gloo, without MPI and UCX. The group is made and borrowed first.

    python -m torch.distributed.run --standalone --nproc-per-node 2 over_gloo.py SCRIPT [ARG...]
"""

from __future__ import annotations

import runpy
import sys


def main() -> None:
    import torch.distributed as dist

    import penstock.torch as hvd

    dist.init_process_group("gloo")
    hvd.lend_process_group()
    del sys.argv[0]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("over_gloo: expected a script to run")
    main()
