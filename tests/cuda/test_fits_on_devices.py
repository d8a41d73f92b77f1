"""Every kernel, optimised as in a release, fits the multiprocessors of its devices. Needs nvcc: ptxas prints shared memory,
registers and spills."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from long_runs import IS_LONG
from sources import BUILT, kernels

# The kernels are assembled for the first architecture. The second makes code from their PTX when it loads them;
# only tools/nightly assembles for it.
TUNED_FOR, LATER = "sm_90", "sm_120"
DEVICES = (TUNED_FOR, LATER) if IS_LONG else (TUNED_FOR,)
MOST_SHARED_BYTES = 48 * 1024  # without asking the driver for more
REGISTERS = 64 * 1024  # of a multiprocessor
USUAL_THREADS = 256  # of a kernel without a bound
MOST_SPILLED_BYTES = 64  # costs only time, and is tested for the device that the kernels are tuned for
# In products that include the momentum, two blocks per multiprocessor are worth more spills.
SPILLS = {"low_rank": 128}
ANY = 1 << 32

KERNELS = kernels()
if not IS_LONG:  # tools/test --all takes those that spill, and every sixth
    KERNELS = [source for number, source in enumerate(KERNELS) if number % 6 == 0 or source.stem in SPILLS]


@dataclass
class Kernel:
    name: str
    shared: int = 0
    spilled: int = 0
    registers: int = 0
    threads: int = USUAL_THREADS

    def faults(self, most_spilled: int) -> list[str]:
        wrong = {
            f"{self.shared} bytes of shared memory, at most {MOST_SHARED_BYTES}": self.shared > MOST_SHARED_BYTES,
            f"{self.spilled} bytes spilled, at most {most_spilled}": self.spilled > most_spilled,
            f"{self.registers} registers in each of {self.threads} threads": self.registers * self.threads > REGISTERS,
            "no registers: what ptxas says was not understood": self.registers == 0,
        }
        return [f"{self.name}: {what}" for what, is_so in wrong.items() if is_so]


def kernels_in(said: str, ptx: str) -> list[Kernel]:
    """The figures of ptxas -v for each kernel, with the bound of its threads from the PTX."""
    bounds = dict(re.findall(r"\.entry (\w+)\([^{]*?\)\s*\.maxntid (\d+)", ptx))
    found = []
    for part in said.split("Compiling entry function ")[1:]:
        kernel = Kernel(re.match(r"'(\w+)'", part)[1])
        kernel.threads = int(bounds.get(kernel.name, USUAL_THREADS))
        kernel.registers = int(re.search(r"Used (\d+) registers", part)[1])
        kernel.shared = sum(map(int, re.findall(r"(\d+) bytes smem", part)))
        spilled = re.search(rf"properties for {kernel.name}\s+.*?(\d+) bytes spill stores, (\d+) bytes spill loads", part)
        kernel.spilled = max(map(int, spilled.groups()))
        found.append(kernel)
    return found


@pytest.mark.parametrize("source", [pytest.param(path, id=path.stem) for path in KERNELS])
def test_kernels_fit(nvcc, commands, source):
    ptx = BUILT / f"{source.stem}.ptx"
    commands[str(source)].run("--ptx", "-o", str(ptx))
    for device in DEVICES:
        assemble = [str(Path(nvcc).parent / "ptxas"), "-v", "-O3", "--gpu-name", device, str(ptx), "-o", "/dev/null"]
        done = subprocess.run(assemble, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-4000:]
        found = kernels_in(done.stderr, ptx.read_text())
        assert len(found) == ptx.read_text().count(".entry "), device
        most_spilled = SPILLS.get(source.stem, MOST_SPILLED_BYTES) if device == TUNED_FOR else ANY
        faults = [fault for kernel in found for fault in kernel.faults(most_spilled)]
        assert not faults, f"on {device}: " + "; ".join(faults)


SAID = """ptxas info    : Compiling entry function '_Z5large' for 'sm_90'
ptxas info    : Function properties for _Z5large
    8 bytes stack frame, 72 bytes spill stores, 68 bytes spill loads
ptxas info    : Used 65 registers, used 1 barriers, 8 bytes cumulative stack size, 50000 bytes smem
ptxas info    : Compiling entry function '_Z5small' for 'sm_90'
ptxas info    : Function properties for _Z5small
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers
"""
PTX = ".visible .entry _Z5large(\n.param .u64 a\n)\n.maxntid 1024\n{\n}\n.visible .entry _Z5small()\n{\n}\n"


def test_what_does_not_fit_is_told():
    large, small = kernels_in(SAID, PTX)
    assert (large.threads, small.threads) == (1024, USUAL_THREADS)
    assert len(large.faults(MOST_SPILLED_BYTES)) == 3
    assert small.faults(MOST_SPILLED_BYTES) == []
