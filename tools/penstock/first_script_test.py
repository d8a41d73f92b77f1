"""What the README tells a new user to do first, in a new shell: no variable of ours, no activated environment."""

import os
import pathlib
import re
import subprocess

import pytest
from command_test import COMMAND, IS_BRIEF, ROOT, needs_mpirun

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


@needs_mpirun
def test_the_script_from_ddp_runs_over_mpi_as_it_is(ddp_script):
    ran = new_shell(COMMAND, "run", "-np", 2, "--", "python", ddp_script)
    assert ran.returncode == 0, ran.stderr
    assert re.fullmatch(r"\[0\] loss \d\.\d+ on 2 ranks\n", ran.stdout)


SHELLS = {"active": ". .venv/bin/activate; penstock run -np 2 -- python {}", "not": "{command} run -np 2 -- python {}"}
if IS_BRIEF:
    del SHELLS["not"]  # the script from DDP runs so


@needs_mpirun
@pytest.mark.parametrize("shell", SHELLS.values(), ids=SHELLS)
def test_the_first_script_runs_on_several_ranks(shell, script):
    if COMMAND != (ROOT / "build/release/bin/penstock").resolve():
        pytest.skip("the command under test is not the one that tools/setup builds")
    ran = new_shell("bash", "-c", shell.format(script, command=COMMAND))
    assert ran.returncode == 0, ran.stderr
    assert re.fullmatch(r"\[0\] loss \d\.\d+ on 2 ranks\n", ran.stdout)


def test_the_package_comes_from_this_checkout():
    found = new_shell(PYTHON, "-c", "import penstock; print(penstock.__file__)").stdout.strip()
    assert pathlib.Path(found).resolve().parent == (ROOT / "frontends/python/penstock").resolve()
