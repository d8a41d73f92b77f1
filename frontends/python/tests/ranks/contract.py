"""Several files of checks in one launch, because a launch takes longer than most files. The
arguments are the names of the files."""

from __future__ import annotations

import importlib
import sys

import support
from support import check_all

for name in sys.argv[1:]:
    module = importlib.import_module(name)
    getattr(module, "begin", support.begin)()
    check_all(vars(module))
print("all checks passed", flush=True)
