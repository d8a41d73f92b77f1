"""What the README tells a new user to do first, in a new shell: no variable of ours, no activated environment."""

import os
import pathlib
import re
import subprocess

import pytest
from command_test import COMMAND, ROOT, needs_mpirun

PYTHON = ROOT / ".venv/bin/python"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="tools/setup has made no .venv here")


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """README's first Python block, as train.py."""
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S).group(1)
    file = tmp_path_factory.mktemp("new-user") / "train.py"
    file.write_text(block)
    return file


def new_shell(*command):
    """Runs a command in the checkout, with the variables of a fresh login."""
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"), "OMP_NUM_THREADS": "1"}
    return subprocess.run([str(word) for word in command], cwd=ROOT, env=environment, capture_output=True, text=True,
                          timeout=600, check=False)


def test_the_first_script_runs_on_one_rank(script):
    ran = new_shell(PYTHON, script)
    assert ran.returncode == 0, ran.stderr
    assert re.fullmatch(r"loss \d\.\d+ on 1 ranks\n", ran.stdout)


@needs_mpirun
@pytest.mark.parametrize("shell", [
    ". .venv/bin/activate; penstock run -np 2 -- python {}", "{command} run -np 2 -- python {}"], ids=["active", "not"])
def test_the_first_script_runs_on_several_ranks(shell, script):
    if COMMAND != (ROOT / "build/release/bin/penstock").resolve():
        pytest.skip("the command under test is not the one that tools/setup builds")
    ran = new_shell("bash", "-c", shell.format(script, command=COMMAND))
    assert ran.returncode == 0, ran.stderr
    assert re.fullmatch(r"\[0\] loss \d\.\d+ on 2 ranks\n", ran.stdout)


def test_the_package_comes_from_this_checkout():
    found = new_shell(PYTHON, "-c", "import penstock; print(penstock.__file__)").stdout.strip()
    assert pathlib.Path(found).resolve().parent == (ROOT / "frontends/python/penstock").resolve()
