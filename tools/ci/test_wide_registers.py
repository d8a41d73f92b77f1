"""Kernels leave no dirty upper halves of vector registers behind: code for SSE that runs afterwards would be slow.

The compiler sees to it, but forgets it in functions that end in a call.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

OBJECTS = Path(__file__).resolve().parents[2] / "build/release/sdk/kernels/CMakeFiles/penstock_kernels.dir/cpu"


def leaving_dirty(listing: str) -> list[str]:
    """Functions of an objdump listing that use wide registers and never clear them."""
    parts = re.split(r"^[0-9a-f]+ <(.*)>:$", listing, flags=re.MULTILINE)[1:]
    functions = zip(parts[::2], parts[1::2])
    return [name for name, body in functions if re.search(r"%[yz]mm", body) and "vzeroupper" not in body]


def test_a_function_that_leaves_them_dirty_is_found():
    clean = "0 <f>:\n vaddps %ymm0,%ymm1,%ymm1\n vzeroupper\n ret\n"
    dirty = "10 <g>:\n vaddps %zmm0,%zmm1,%zmm1\n jmp h\n20 <h>:\n addps %xmm0,%xmm1\n"
    assert leaving_dirty(clean + dirty) == ["g"]


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed")
@pytest.mark.skipif(not OBJECTS.is_dir(), reason="nothing is built in build/release")
def test_kernels_clear_the_upper_halves():
    objects = sorted(OBJECTS.glob("*.o"))
    assert objects
    listing = subprocess.run(["objdump", "-d", "-C", "--no-show-raw-insn", *objects], capture_output=True, text=True, check=True).stdout
    assert leaving_dirty(listing) == []
