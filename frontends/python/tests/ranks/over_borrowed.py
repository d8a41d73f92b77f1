"""Runs a script of this folder over a borrowed process group: the group is made and borrowed first, and the
launcher has chosen the transport (PENSTOCK_RUN_CONFIG), whatever the script gives init."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from ddp_support import join_torch

import penstock.torch as hvd

if __name__ == "__main__":
    join_torch()
    hvd.lend_process_group()
    del sys.argv[0]
    runpy.run_path(str(Path(__file__).parent / sys.argv[0]), run_name="__main__")
