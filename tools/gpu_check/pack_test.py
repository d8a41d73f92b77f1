"""The pack on a machine that has Python with torch, and neither this repository's other needs nor a device: it is unpacked there and run."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from long_runs import IS_LONG

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tools"))

from gpu_check.parts import CHECKS  # noqa: E402

BARE = REPOSITORY / "tools/gpu_check/bare.sh"
KEPT = ["figures.json", "figures.md", "found.tgz", "summary.txt"]
MOST_BYTES = 40e6
LIMIT_S = 180


def nvcc() -> str | None:
    beside = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin/nvcc"
    return shutil.which("nvcc") or (str(beside) if os.access(beside, os.X_OK) else None)


@pytest.fixture(scope="module")
def whole() -> Path:
    """With the programs for compute capability 9.0, which are built once, for ten minutes."""
    if not IS_LONG:
        pytest.skip("tools/nightly runs it")
    if nvcc() is None:
        pytest.skip("no CUDA compiler: the pack has no programs")
    if not (REPOSITORY / "build/release/lib/libpenstock.so.0").exists():
        pytest.skip("there is no build/release/lib/libpenstock.so.0: tools/setup")
    if subprocess.run([BARE, "true"], capture_output=True).returncode == 77:
        pytest.skip("no mount namespace can be made here")
    done = subprocess.run([REPOSITORY / "tools/gpu-check", "--pack"], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0 and "not in the pack" not in done.stdout, done.stdout + done.stderr
    return REPOSITORY / "build/gpu-pack"


@pytest.fixture
def pack(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "gpu-pack"))


def start(pack: Path, *words: str, **changes: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "PYTHONPATH"))}
    where = {**kept, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "OUT": str(pack.parent / "out"), **changes}
    return subprocess.Popen([BARE, *words], cwd=pack, env=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def kept(pack: Path) -> dict[str, object]:
    out = pack.parent / "out"
    assert sorted(path.name for path in out.iterdir()) == KEPT
    with tarfile.open(out / "found.tgz") as tar:
        assert "found" in tar.getnames()
    return json.loads((out / "figures.json").read_text())


def test_it_is_small(whole):
    assert sum(path.stat().st_size for path in whole.rglob("*") if path.is_file()) <= MOST_BYTES


def test_its_programs_have_the_kinds_of_kernels_that_are_checked_one_by_one(whole, tmp_path):
    with tarfile.open(whole / "build/gpu-prebuilt.tar.xz") as tar:
        tar.extract("kernels/bin/kernels_cuda_check", tmp_path)
    listed = subprocess.run([tmp_path / "kernels/bin/kernels_cuda_check", "--list"], capture_output=True, text=True, check=True).stdout
    assert sorted(listed.splitlines()) == sorted(CHECKS)


def test_every_part_comes_to_say_that_there_is_no_device(pack):
    if subprocess.run([sys.executable, "-c", "import sys, torch; sys.exit(torch.cuda.is_available())"]).returncode == 1:
        pytest.skip("there is a device: tools/gpu-check")
    begin = time.monotonic()
    process = start(pack, "tools/gpu-check", "--for", str(LIMIT_S))
    said, _ = process.communicate(timeout=LIMIT_S + 20)
    assert process.returncode == 0 and time.monotonic() - begin <= LIMIT_S, said
    assert "programs: those that came along" in said and "not used: ranks meet over torch's gloo" in said
    checks = kept(pack)["checks"]
    assert all("skipped" in one for one in checks.values()), said
    for name in ("device", "check"):
        assert checks[name]["skipped"].startswith("no CUDA device"), said
    for name in ("methods", "training", "compiled", "steps_2"):
        assert checks[name]["skipped"].endswith("finds no CUDA device"), said
    # The runtime that it laid out takes a step there, too.
    runtime, scripts = pack / "build/gpu-check/runtime", "frontends/python/tests/scripts"
    ranks = ("-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2")
    process = start(
        pack, sys.executable, *ranks, f"{scripts}/over_gloo.py", "tools/benches/cuda/small_step.py", "--device", "cpu", "--rounds", "3",
        PENSTOCK_LIBRARY=str(runtime / "libpenstock.so.0"), PYTHONPATH=str(pack / "frontends/python"), LD_LIBRARY_PATH=str(runtime),
        GLOO_SOCKET_IFNAME="lo", PENSTOCK_PORT=str(random.randrange(20000, 30000)),
    )  # fmt: skip
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and "topk: " in said, said


@pytest.mark.parametrize("seconds", (4, 9))
def test_stopped_at_any_second_it_leaves_figures_and_the_tar(pack, seconds):
    process = start(pack, "timeout", "-k", "60", str(seconds), "tools/gpu-check", "--for", str(LIMIT_S))
    said, _ = process.communicate(timeout=120)
    assert process.returncode in (124, 0), said  # a fast machine may be through
    assert kept(pack)["goals"], said
    if process.returncode == 124:
        assert f"stopped by signal {int(signal.SIGTERM)}" in said


def test_programs_that_do_not_unpack_are_built_there_where_that_goes(pack):
    (pack / "build/gpu-prebuilt.tar.xz").write_bytes(b"cut")
    process = start(pack, "tools/gpu-check", "--for", "60", CUDA_HOME="/nowhere")
    said, _ = process.communicate(timeout=90)
    if "not built: nvcc: not installed" not in said:
        pytest.skip("nvcc is beside the other compilers")
    assert process.returncode == 0 and "check: skipped" in said, said
