"""From `penstock new` to a trained model: made and built outside the tree, checked, trained with."""

import json
import os

import pytest
import warm_python
from command_test import BUILD, ROOT, needs_mpirun, penstock

RANKS = 2
STEPS = 120


@pytest.fixture
def mine(new_plugins):
    """The folder of a compressor as `penstock new` leaves it, built against the installed SDK."""
    folder, ran = new_plugins["compressor"]
    assert ran[-1].returncode == 0, ran[-1].stdout + ran[-1].stderr
    return folder


def test_id_options_and_readme_are_filled_in(mine):
    checked = penstock("check", mine / "build/plugins/compressor-my-own.so", "--json")
    assert checked.returncode == 0, checked.stdout
    where = str(mine / "build/plugins")
    described = penstock("plugins", "describe", "compressor/my-own", PENSTOCK_PLUGIN_DIRECTORY=where)
    assert described.returncode == 0, described.stderr
    assert "compressor/my-own" in described.stdout and "stride" in described.stdout
    readme = (mine / "README.md").read_text()
    assert "my-own" in readme and "stride" in readme and "template" not in readme.lower()


@needs_mpirun
def test_a_new_compressor_trains_the_digits(mine, tmp_path):
    job = [warm_python.executable(), "-m", "quickstart_job.train", "--task", "digits", "--config", mine / "my-own.toml",
           "--steps", STEPS, "--out", tmp_path, "--progress", "none"]
    paths = [str(ROOT / "tools"), str(ROOT / "frontends/python")]
    ran = penstock("run", "-np", RANKS, "--", *job, PYTHONPATH=os.pathsep.join(paths), OMP_NUM_THREADS="1",
                   PENSTOCK_LIBRARY=str(BUILD / "lib/libpenstock.so"))
    assert ran.returncode == 0, ran.stdout + ran.stderr  # 1 too where ranks end with different weights
    (scheme,) = json.loads((tmp_path / "summary.json").read_text())["schemes"]
    losses = scheme["losses"]
    assert len(losses) == STEPS
    # Ten digits: log 10 = 2.3 at the start, and for as long as nothing is learnt.
    assert losses[0] > 2.0 and sum(losses[-10:]) / 10 < 1.0, losses
    # Every second entry is sent, rounded up for each gradient.
    assert scheme["payload_bytes_per_step"] < 0.51 * scheme["gradient_bytes_per_step"]


def losses_of(config, out, *, ranks=3, steps=8):
    """Of a few steps on the digits."""
    job = [warm_python.executable(), "-m", "quickstart_job.train", "--task", "digits", "--config", config, "--steps", steps, "--out", out,
           "--progress", "none"]
    paths = [str(ROOT / "tools"), str(ROOT / "frontends/python")]
    ran = penstock("run", "-np", ranks, "--", *job, PYTHONPATH=os.pathsep.join(paths), OMP_NUM_THREADS="1",
                   PENSTOCK_LIBRARY=str(BUILD / "lib/libpenstock.so"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (scheme,) = json.loads((out / "summary.json").read_text())["schemes"]
    return scheme["losses"]


@needs_mpirun
@pytest.mark.long
def test_a_new_composite_trains_to_the_bit_as_a_gather_does(new_plugins, tmp_path):
    folder, ran = new_plugins["composite"]
    assert ran[-1].returncode == 0, ran[-1].stdout + ran[-1].stderr
    bare = folder / "bare.toml"
    text = (folder / "my-own.toml").read_text()
    bare.write_text(text.replace('collective = "my-own"\ntransport = "mpi"', 'collective = "mpi"'))
    assert "transport" not in bare.read_text()
    # A composite adds float32 values. A gather would send float16 by default.
    bare.write_text(bare.read_text().replace("density = 0.01", 'density = 0.01\nvalue_type = "fp32"'))
    assert losses_of(folder / "my-own.toml", tmp_path / "composite") == losses_of(bare, tmp_path / "bare")
