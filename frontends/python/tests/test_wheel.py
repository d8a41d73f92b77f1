"""The wheel: with the runtime in it, or not at all."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parents[1]


@pytest.fixture
def checkout(tmp_path):
    """A checkout of the package alone, without a build."""
    copy = tmp_path / "checkout"
    ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info", "tests")
    shutil.copytree(PACKAGE, copy / "frontends/python", ignore=ignored)
    shutil.copy(ROOT / "CMakePresets.json", copy)
    return copy


def make_wheel(checkout, folder):
    return subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--no-deps", "--disable-pip-version-check"),
            *("-w", folder, checkout / "frontends/python"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )


def build(checkout, folder):
    """What goes into a wheel, without the index that pip takes the newest setuptools from."""
    return subprocess.run(
        [sys.executable, "setup.py", "-q", "build", "--build-lib", folder],
        cwd=checkout / "frontends/python",
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_wheel_without_the_runtime_is_refused(checkout, tmp_path):
    made = build(checkout, tmp_path / "built")
    assert made.returncode != 0
    assert "a wheel needs the runtime" in made.stderr


def test_a_wheel_is_of_this_platform_and_holds_the_runtime(checkout, tmp_path):
    (checkout / "build").symlink_to(ROOT / "build")
    made = make_wheel(checkout, tmp_path / "wheels")
    if "Could not find a version that satisfies the requirement setuptools" in made.stderr:
        pytest.skip("pip reaches no package index")
    assert made.returncode == 0, made.stdout + made.stderr
    (wheel,) = tmp_path.glob("wheels/*.whl")
    assert "-py3-none-" in wheel.name and not wheel.name.endswith("-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "penstock/lib/libpenstock.so.0" in names
    assert "penstock/lib/penstock/plugins/collective-mpi.so" in names


def test_what_goes_into_a_wheel_works_outside_the_checkout(checkout, tmp_path):
    (checkout / "build").symlink_to(ROOT / "build")
    installed = tmp_path / "installed"
    made = build(checkout, installed)
    assert made.returncode == 0, made.stderr
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    environment["PYTHONPATH"] = str(installed)
    text = '[scheme]\ncollective = "loopback"\n'
    script = (
        f"import json, penstock.torch as hvd; hvd.init(config_text={text!r}); "
        "print(json.dumps(hvd.report()))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    plugins = [Path(plugin["path"]) for plugin in json.loads(ran.stdout)["plugins"]]
    assert len(plugins) > 20
    assert {plugin.parent for plugin in plugins} == {installed / "penstock/lib/penstock/plugins"}
