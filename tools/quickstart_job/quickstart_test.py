"""The command: it reports errors before any rank starts, and builds the plugins that its schemes need."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

from quickstart_job import toml_text
from quickstart_job.recipes import CONF, QUICKSTART, recipe, recipe_of_file

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
    assert recipe_of_file(file).optimizer("text").momentum == 0.9
    assert recipe_of_file(CONF / "s-sgd.toml").name == "s-sgd"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--link", "fast"], "'fast'"),
        (["--link", "100"], "'100'"),
        (["--link="], "''"),
        (["--task", "speech"], "'speech'"),
        (["--steps", "0"], "'0'"),
        (["--steps", "many"], "'many'"),
        (["--seed", "-1"], "'-1'"),
        (["--config", "nowhere.toml"], "nowhere.toml"),
        (["--steps"], "--steps wants a value"),
        (["--bandwidth"], "'--bandwidth'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_argument_is_named_before_anything_is_set_up(arguments, named, checkout):
    (checkout / "tools/setup").write_text("#!/bin/sh\necho setup was called\n")
    ran = subprocess.run([checkout / "tools/quickstart", *arguments], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2 and ran.stdout == "", ran.stdout
    first = ran.stderr.splitlines()[0]
    assert first.startswith("quickstart: ") and named in first


def test_help_is_said_before_anything_is_set_up(checkout):
    (checkout / "tools/setup").write_text("#!/bin/sh\necho setup was called\n")
    ran = subprocess.run([checkout / "tools/quickstart", "--help"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0 and ran.stdout.startswith("usage: tools/quickstart") and "setup was called" not in ran.stdout


def test_when_setting_up_fails_no_rank_starts(checkout):
    (checkout / "tools/setup").write_text("#!/bin/sh\necho setup: step 5 of 5 failed: building >&2\nexit 1\n")
    ran = subprocess.run([checkout / "tools/quickstart"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1 and "step 5 of 5 failed" in ran.stderr and "training" not in ran.stdout


def test_when_training_fails_it_says_so_and_where_the_log_is(checkout):
    python = checkout / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 7\n")
    python.chmod(0o755)
    ran = subprocess.run([checkout / "tools/quickstart"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 7 and "training job failed (status 7)" in ran.stderr and "build/quickstart/log.txt" in ran.stderr


def test_all_plugins_are_there_after_set_up():
    """Also plugins that no scheme of the command names, because the README's next lines may name any plugin. nccl needs CUDA."""
    folders = {path.parent for path in ROOT.glob("plugins/*/*/CMakeLists.txt")}
    expected = {f"{folder.parent.name[:-1].replace('memorie', 'memory')}-{folder.name}" for folder in folders} - {"collective-nccl"}
    built = {path.stem for path in (ROOT / "build/release/lib/penstock/plugins").glob("*.so")}
    assert len(expected) > 50 and expected <= built, f"missing: {sorted(expected - built)}"


def test_buckets_are_cut_where_a_scheme_merges_gradients(tmp_path):
    file = tmp_path / "cut.toml"
    file.write_text(recipe("s-sgd").text(1000))
    assert toml_text.load(file)["scheduler"]["fusion"]["threshold_bytes"] == 1000
    for name, bucket_bytes in (("s-sgd", None), ("ok-topk", 1000), ("wfbp", 1000), ("sparseloco-every-3", 1000)):
        assert recipe(name).text(bucket_bytes) == recipe(name).text()
