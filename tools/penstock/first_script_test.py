"""What the README tells a new user to do first, in a new shell: no variable of ours, no activated environment. tests/pages
runs the same scripts under each launcher, in the environment."""

import os
import pathlib
import re
import subprocess

import pytest
from command_test import COMMAND, ROOT, needs_mpirun

PYTHON = ROOT / ".venv/bin/python"
pytestmark = [pytest.mark.pages, pytest.mark.skipif(not PYTHON.exists(), reason="tools/setup has made no .venv here")]


def train_py(folder, which):
    """README's Python block of this number, as train.py."""
    file = folder / "train.py"
    file.write_text(re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[which])
    return file


@pytest.fixture(scope="module")
def ddp_script(tmp_path_factory):
    return train_py(tmp_path_factory.mktemp("from-ddp"), 0)


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    return train_py(tmp_path_factory.mktemp("from-horovod"), 1)


def new_shell(*command):
    """Runs a command in the checkout, with the variables of a fresh login."""
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"), "OMP_NUM_THREADS": "1"}
    return subprocess.run([str(word) for word in command], cwd=ROOT, env=environment, capture_output=True, text=True,
                          timeout=600, check=False)


def test_the_first_script_runs_on_one_rank(script):
    ran = new_shell(PYTHON, script)
    assert ran.returncode == 0, ran.stderr
    assert re.fullmatch(r"loss \d\.\d+ on 1 ranks\n", ran.stdout)


def test_the_script_from_ddp_runs_under_torchrun(ddp_script):
    ran = new_shell(PYTHON.with_name("torchrun"), "--standalone", "--nproc-per-node", 2, ddp_script)
    assert ran.returncode == 0, ran.stderr
    assert re.fullmatch(r"loss \d\.\d+ on 2 ranks\n", ran.stdout)


@pytest.mark.parametrize("python", [
    pytest.param((PYTHON,), id="python"),
    pytest.param((COMMAND, "run", "-np", 1, "--", "python"), id="penstock run", marks=needs_mpirun)])
def test_the_package_comes_from_this_checkout(python):
    found = new_shell(*python, "-c", "import penstock; print(penstock.__file__)").stdout.strip().removeprefix("[0] ")
    assert pathlib.Path(found).resolve().parent == (ROOT / "frontends/python/penstock").resolve()
