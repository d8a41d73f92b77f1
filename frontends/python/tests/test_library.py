"""The library that is loaded, and the refused libraries: no library, a file that is not the
library, and a file that other users can change."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from launch import run_python

import penstock._library as c

PACKAGE = Path(__file__).resolve().parents[1]


def python(code, *arguments, **environment):
    """Runs code in a process of its own."""
    return run_python("-c", code, *arguments, **environment)


def test_a_missing_library_says_what_to_do(tmp_path):
    done = python(
        "import penstock._library as c; c.library()", PENSTOCK_LIBRARY=str(tmp_path / "libnone.so")
    )
    assert (
        "ImportError" in done.stderr
        and "libnone.so" in done.stderr
        and "PENSTOCK_LIBRARY" in done.stderr
    )
    copied = tmp_path / "copy" / "a" / "b"
    copied.mkdir(parents=True)
    subprocess.run(["cp", "-r", str(PACKAGE / "penstock"), str(copied)], check=True)
    subprocess.run(["rm", "-rf", str(copied / "penstock" / "lib")], check=True)
    done = python(
        "import penstock._library as c; c.library()", PYTHONPATH=str(copied), PENSTOCK_LIBRARY=""
    )
    assert "ImportError" in done.stderr and "tools/setup" in done.stderr


def test_something_else_than_the_library_is_refused(tmp_path):
    text = tmp_path / "libtext.so"
    text.write_text("not a library")
    done = python("import penstock._library as c; c.library()", PENSTOCK_LIBRARY=str(text))
    assert "ImportError" in done.stderr and "could not be loaded" in done.stderr
    import ctypes.util

    other = ctypes.util.find_library("z")
    loaded = [
        line.split()[-1]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if f"/{other}" in line
    ]
    assert loaded, (
        "this process has no libz mapped, which the check needs as a library that is not ours"
    )
    done = python("import penstock._library as c; c.library()", PENSTOCK_LIBRARY=loaded[0])
    assert "ImportError" in done.stderr and "is not a libpenstock" in done.stderr, done.stderr


def load(library):
    return python("import penstock._library as c; c.library()", PENSTOCK_LIBRARY=str(library))


def test_a_library_that_others_can_change_is_not_loaded(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    library = folder / "libpenstock.so"
    shutil.copy(c.library().path, library)
    assert load(library).returncode == 0
    for place, mode in ((library, 0o646), (folder, 0o777)):
        before = place.stat().st_mode
        place.chmod(mode)
        done = load(library)
        assert f"not loaded, because everybody may write to {place}" in done.stderr, done.stderr
        assert "ImportError" in done.stderr and "chmod go-w" in done.stderr
        place.chmod(before)
    # A link is followed first, and the permissions of its target count.
    link = tmp_path / "link.so"
    link.symlink_to(library)
    folder.chmod(0o777)
    assert f"everybody may write to {folder}" in load(link).stderr
    # A sticky folder is accepted if the folder inside is private.
    inner = folder / "inner"
    inner.mkdir(mode=0o700)
    shutil.copy(library, inner)
    assert "everybody" in load(inner / "libpenstock.so").stderr
    folder.chmod(0o1777)
    assert load(inner / "libpenstock.so").returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_library_of_another_user_or_a_shared_group_is_not_loaded(tmp_path):
    library = tmp_path / "libpenstock.so"
    shutil.copy(c.library().path, library)
    os.chown(library, 12345, 0)
    assert f"{library} belongs to user 12345, expected root or user 0" in load(library).stderr
    os.chown(library, 0, 12345)
    assert load(library).returncode == 0
    library.chmod(0o664)
    assert f"group 12345 may write to {library}" in load(library).stderr


def test_a_path_that_is_no_utf_8_is_a_path(tmp_path):
    folder = os.fsencode(tmp_path)
    with open(folder + b"/a\xff.toml", "w") as file:
        file.write('[scheme]\ncompressor = "none"\n')
    done = python(
        "import os, sys, penstock.torch as hvd\n"
        "for path in (os.fsencode(sys.argv[1]), sys.argv[1]):\n"
        "    hvd.init(config=path)\n"
        "    assert 'toml' in str(hvd.report())\n"
        "    hvd.shutdown()\n"
        "try:\n"
        "    hvd.init(config=sys.argv[1] + 'x')\n"
        "except hvd.HorovodInternalError as error:\n"
        "    assert 'there is no such configuration file' in str(error), error\n"
        "    print('was there, and was not')\n",
        os.fsdecode(folder + b"/a\xff.toml"),
    )
    assert done.stdout == "was there, and was not\n", done.stderr
