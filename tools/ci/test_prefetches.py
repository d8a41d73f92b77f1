"""Prefetches stay in the code: a compiler takes a function that only prefetches for one without an effect, and removes its calls.

sdk/kernels/prefetch.hpp keeps them, so nothing else uses the builtin.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = REPOSITORY / "sdk/kernels/cpu"
OBJECTS = REPOSITORY / "build/release/sdk/kernels/CMakeFiles/penstock_kernels.dir/cpu"
ROOMS = ("core", "sdk", "plugins", "frontends", "tools")


def prefetching(listing: str) -> bool:
    """Whether an objdump listing has an instruction that prefetches."""
    return re.search(r"\tprefetch|\tprfm", listing) is not None


def test_a_listing_without_prefetches_is_found():
    assert prefetching("  10:\tprefetcht0 (%rdi)\n")
    assert not prefetching("0 <prefetch>:\n  10:\tret\n")


def test_only_one_file_uses_the_builtin():
    files = [file for room in ROOMS for end in ("hpp", "cpp", "inc", "h") for file in (REPOSITORY / room).rglob(f"*.{end}")]
    assert files
    using = [file.relative_to(REPOSITORY).as_posix() for file in files if "__builtin_prefetch" in file.read_text()]
    assert using == ["sdk/kernels/prefetch.hpp"]


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed")
@pytest.mark.skipif(not OBJECTS.is_dir(), reason="nothing is built in build/release")
@pytest.mark.parametrize("source", ("compact", "fold", "rows", "select", "stochastic"))
def test_a_source_that_prefetches_does_so_when_compiled(source):
    text = (SOURCES / f"{source}.cpp").read_text() + "".join(file.read_text() for file in SOURCES.glob(f"{source}_body.inc"))
    assert "fetch" in text, "this source prefetches no more; leave it out here"
    command = ["objdump", "-d", "--no-show-raw-insn", OBJECTS / f"{source}.cpp.o"]
    assert prefetching(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
