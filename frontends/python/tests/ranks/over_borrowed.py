"""Runs a script of this folder over a borrowed process group. The group is made and borrowed
first. The launcher has chosen the transport (PENSTOCK_RUN_CONFIG), and the script's arguments
of init do not change it."""

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
