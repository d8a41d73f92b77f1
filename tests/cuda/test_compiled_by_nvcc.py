"""nvcc compiles the CUDA part (skipped without nvcc). The simulated device accepts code that nvcc refuses."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BUILT = REPOSITORY / "build/compiled-by-nvcc"
# Virtual code without optimisation, because it compiles quickly. test_fits_on_devices.py checks optimised code for each
# device.
OPTIONS = ("-DCMAKE_CUDA_ARCHITECTURES=80-virtual", "-DCMAKE_BUILD_TYPE=", "-DCMAKE_CUDA_FLAGS=-O0 -Xcicc -O0")
KERNELS = [f"{path}^" for path in (*sorted((REPOSITORY / "sdk/kernels/cuda").glob("*.cu")), REPOSITORY / "tests/cuda/plugin/doubled.cu")]


@pytest.mark.parametrize(
    ("source", "targets"),
    [
        pytest.param("core/device/cuda", ["all"], id="the device's table and its check"),
        # `FILE.cu^` is ninja's name for the first output of FILE.cu. The same library also has kernels of the CPU,
        # which other tests compile.
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


def test_kernels_are_in_the_list_of_what_is_loaded_before_a_step(nvcc, tmp_path):
    """The kernels that the test above compiled are linked with a runtime that only counts. A kernel that is not in
    the list is found too."""
    folder = BUILT / "tests-cuda"
    of_plugin, *objects = [*folder.glob("**/doubled.cu.o"), *folder.glob("kernels/**/*.cu.o")]
    assert len(objects) == len(KERNELS) - 1, "the test above compiles them"
    program = tmp_path / "kernels"
    # Kernels of the CPU and copies remain unresolved, because nobody calls them here.
    link = ["g++", "-static", "-std=c++20", "-I", "sdk", "tests/cuda/listing/stands_in.cpp", of_plugin, *objects, "-o", program]
    done = subprocess.run([*link, "-Wl,--unresolved-symbols=ignore-all"], cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    loaded, *not_loaded = subprocess.run([program], capture_output=True, text=True, timeout=60).stdout.splitlines()
    said = re.match(r"(\d+) kernels are loaded, error 0$", loaded)
    assert said and int(said[1]) > 200, loaded
    assert len(not_loaded) == 1 and "scale_and_add" in not_loaded[0], not_loaded
