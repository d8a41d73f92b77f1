"""What several tests of the command need."""

import concurrent.futures
import fcntl
import os
import shutil
import subprocess

import pytest
from command_test import BUILD, COMMAND, NEW_KINDS, penstock

# Built where the path is the same in each run, so that the compiler's cache knows the sources.
OUTSIDE = BUILD / "outside_new"


def build_new(kind):
    """Makes, configures, builds and tests a plugin with `penstock new`, and returns what each command said, up to the
    first that failed."""
    folder, prefix = OUTSIDE / kind / "my-own", OUTSIDE / "sdk"
    cached = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    ran = [penstock("new", kind, "my-own", "--directory", folder.parent)]
    for command in (["cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}", *cached],
                    ["cmake", "--build", folder / "build"],
                    ["ctest", "--test-dir", folder / "build", "--no-tests=error", "--output-on-failure"]):
        if ran[-1].returncode == 0:
            ran.append(subprocess.run(command, capture_output=True, text=True, timeout=600, check=False))
    return ran


@pytest.fixture(scope="session")
def new_plugins(tmp_path_factory):
    """By kind: the folder of a plugin `my-own` as `penstock new` leaves it, built against the installed SDK outside the
    tree's own build, and what build_new() returned."""
    kept = tmp_path_factory.mktemp("new")
    with open(BUILD / "outside_new.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second run of these tests waits
        shutil.rmtree(OUTSIDE, ignore_errors=True)
        OUTSIDE.mkdir()
        subprocess.run(["cmake", "--install", BUILD, "--component", "sdk", "--prefix", OUTSIDE / "sdk"], check=True,
                       capture_output=True)
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            ran = dict(zip(NEW_KINDS, pool.map(build_new, NEW_KINDS), strict=True))
        for kind in NEW_KINDS:
            if (OUTSIDE / kind).exists():
                shutil.move(OUTSIDE / kind, kept)
        shutil.rmtree(OUTSIDE)
    return {kind: (kept / kind / "my-own", ran[kind]) for kind in NEW_KINDS}


@pytest.fixture
def alone(tmp_path):
    """The command and the runtime in folders of their own. No Python lies beside them, so `penstock doctor` starts no
    ranks under the launchers, which takes 15 s of a core."""
    for folder in ("bin", "lib"):
        (tmp_path / folder).mkdir()
    shutil.copy(COMMAND, tmp_path / "bin/penstock")
    shutil.copy(BUILD / "lib/libpenstock.so.0", tmp_path / "lib")
    (tmp_path / "lib/penstock").symlink_to(BUILD / "lib/penstock")
    return tmp_path
