"""A configuration that is wrong is one message with the file's name, before any rank starts."""

import os
import pathlib
import shutil
import subprocess

import pytest

from quickstart_job.recipes import CONF, recipe_of_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = pathlib.Path(os.environ.get("PENSTOCK_COMMAND", ROOT / "build/release/bin/penstock")).resolve()

WRONG = {
    "scheme is no table": ("scheme = 3\n", "scheme is"),
    "syntax": ("[scheme\n", "not valid TOML"),
    "unknown plugin": ('[scheme]\ncompressor = "topq"\n', "topq"),
}


@pytest.fixture
def checkout(tmp_path):
    """A checkout that is set up already, in which no rank can start: it has no Python environment."""
    (tmp_path / "tools").mkdir()
    for name in ("quickstart", "steps.sh"):
        shutil.copy(ROOT / "tools" / name, tmp_path / "tools")
    setup = tmp_path / "tools/setup"
    setup.write_text("#!/bin/sh\n")
    setup.chmod(0o755)
    (tmp_path / "build/release/bin").mkdir(parents=True)
    (tmp_path / "build/release/bin/penstock").symlink_to(COMMAND)
    return tmp_path


@pytest.mark.parametrize("name", WRONG)
def test_the_quickstart_says_once_what_is_wrong_and_starts_no_rank(name, checkout):
    text, expected = WRONG[name]
    file = checkout / "wrong.toml"
    file.write_text(text)
    ran = subprocess.run([checkout / "tools/quickstart", "--config", file], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert ran.stderr.startswith(f"quickstart: --config: {file}") and expected in ran.stderr
    assert len(ran.stderr.splitlines()) == 1 and "training" not in ran.stdout


@pytest.mark.parametrize("name", ["scheme is no table", "syntax"])
def test_the_job_names_the_file_that_it_cannot_read(name, tmp_path):
    text, expected = WRONG[name]
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=expected) as raised:
        recipe_of_file(file)
    assert str(raised.value).startswith(f"{file}: ")


def test_a_file_without_a_scheme_is_a_recipe(tmp_path):
    file = tmp_path / "plain.toml"
    file.write_text("")
    assert recipe_of_file(file).momentum == 0.9
    assert recipe_of_file(CONF / "s-sgd.toml").name == "s-sgd"
