"""The CUDA part compiled by nvcc, if there is one: nvcc refuses some code that the compiler of the simulated device takes.
tools/nightly compiles and links it whole, as it goes into the pack of tools/gpu-check."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from long_runs import IS_LONG
from sources import REPOSITORY, kernels

sys.path.insert(0, str(REPOSITORY / "tools"))

from gpu_check.build import PROGRAMS  # noqa: E402

BUILT = REPOSITORY / "build/gpu-pack-build"
SOURCES = [source for source in kernels() if source.is_relative_to(REPOSITORY / "sdk")]
# Beside kernels: what is compiled against CUDA's headers.
AGAINST_HEADERS = [
    source
    for room in ("core/device/cuda", "plugins/collectives/nccl")
    for source in sorted((REPOSITORY / room).glob("*.cpp"))
    if not source.stem.endswith("_test")
]
is_long = pytest.mark.skipif(not IS_LONG, reason="tools/nightly")


@pytest.mark.parametrize("source", kernels(), ids=lambda path: path.stem)
def test_nvcc_takes_every_kernel(source, commands, tmp_path):
    commands[str(source)].run("--ptx", "-Xcicc", "-O0", "-o", str(tmp_path / "ptx"))


@pytest.mark.parametrize("source", AGAINST_HEADERS, ids=lambda path: path.stem)
def test_what_calls_cuda_fits_its_headers(source, commands):
    commands[str(source)].run("-fsyntax-only")


@pytest.fixture(scope="module")
def built(nvcc) -> Path:
    """The CUDA part as it goes into the pack, so that the tests of tools/gpu_check find it built."""
    done = subprocess.run([REPOSITORY / "tools/gpu-check", "--pack"], cwd=REPOSITORY, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0 and "programs for compute capability" not in done.stdout, done.stdout[-6000:] + done.stderr[-2000:]
    return BUILT


@is_long
def test_nvcc_compiles_the_device_table_all_kernels_and_a_plugin(built):
    assert all((built / name).is_file() for name in PROGRAMS)
    assert [*built.glob("kernels/plugins/*doubled*.so")]


@is_long
def test_kernels_are_in_the_list_of_what_is_loaded_before_a_step(built, tmp_path):
    """The kernels compiled above, linked with a runtime that only counts. One kernel is launched without the list on purpose."""
    folder = built / "kernels"
    of_plugin, *objects = [*folder.glob("**/doubled.cu.o"), *folder.glob("kernels/**/*.cu.o")]
    assert len(objects) == len(SOURCES)
    program = tmp_path / "kernels"
    # Kernels of the CPU and copies are not linked, because nothing calls them here.
    link = ["g++", "-static", "-std=c++20", "-I", "sdk", "tests/cuda/listing/stands_in.cpp", of_plugin, *objects, "-o", program]
    done = subprocess.run([*link, "-Wl,--unresolved-symbols=ignore-all"], cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    loaded, *not_loaded = subprocess.run([program], capture_output=True, text=True, timeout=60).stdout.splitlines()
    said = re.match(r"(\d+) kernels are loaded, error 0$", loaded)
    assert said and int(said[1]) > 200, loaded
    assert len(not_loaded) == 1 and "scale_and_add" in not_loaded[0], not_loaded
