"""The CUDA part as nvcc compiles it, where there is one: what compiles for the simulated device takes code that nvcc refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BUILT = REPOSITORY / "build/compiled-by-nvcc"
# Code for no device in particular, and quickly made; what optimisation and a device's own assembler add, test_fits_on_devices.py finds.
OPTIONS = ("-DCMAKE_CUDA_ARCHITECTURES=80-virtual", "-DCMAKE_BUILD_TYPE=", "-DCMAKE_CUDA_FLAGS=-O0 -Xcicc -O0")
KERNELS = [f"{path}^" for path in (*sorted((REPOSITORY / "sdk/kernels/cuda").glob("*.cu")), REPOSITORY / "tests/cuda/plugin/doubled.cu")]


@pytest.mark.parametrize(
    ("source", "targets"),
    [
        pytest.param("core/device/cuda", ["all"], id="the device's table and its check"),
        # What ninja makes of each first; the kernels of the CPU, which go into the same library, are compiled elsewhere.
        pytest.param("tests/cuda", KERNELS, id="the kernels, and those of a plugin"),
    ],
)
def test_nvcc_compiles_it(nvcc, source, targets):
    assert targets
    folder = BUILT / source.replace("/", "-")
    configured = ["cmake", "-S", source, "-B", folder, "-G", "Ninja", f"-DCMAKE_CUDA_COMPILER={nvcc}", *OPTIONS]
    for command in (configured, ["ninja", "-C", folder, "-j", "1", *targets]):
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
