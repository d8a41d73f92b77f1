"""That the pack of tools/gpu-check has all that whole steps need; the command itself: tools/gpu_check/command_test.py."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
RUNTIME = "build/release/lib/libpenstock.so.0"
STEP = "tools/benches/cuda/step_on_device.py"
SCRIPTS = "frontends/python/tests/scripts"

needs_runtime = pytest.mark.skipif(not (REPOSITORY / RUNTIME).exists(), reason=f"there is no {RUNTIME}: tools/setup")


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pack as another machine has it: elsewhere, and without this repository."""
    subprocess.run([REPOSITORY / "tools/gpu-check", "--pack", "--sources"], check=True, capture_output=True, timeout=120)
    return Path(shutil.copytree(REPOSITORY / "build/gpu-pack", tmp_path_factory.mktemp("pack") / "gpu-pack", symlinks=True))


def environment(pack: Path) -> dict[str, str]:
    """Nothing of the caller's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    libraries = f"{pack}/build/release/lib/system"
    ours = {"PENSTOCK_LIBRARY": str(pack / RUNTIME), "PYTHONPATH": str(pack / "frontends/python")}
    return {**kept, **ours, "LD_LIBRARY_PATH": libraries, "PENSTOCK_PORT": str(random.randrange(20000, 30000)), "GLOO_SOCKET_IFNAME": "lo"}


def run(pack: Path, *command: str) -> str:
    done = subprocess.run([sys.executable, *command], cwd=pack, env=environment(pack), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def over_gloo(pack: Path, ranks: int, script: str, *arguments: str) -> str:
    """As gpu-check does."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(ranks))
    return run(pack, *launcher, f"{SCRIPTS}/over_gloo.py", script, *arguments)


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of five gradients."""
    folder = tmp_path_factory.mktemp("profiles")
    (folder / "small.csv").write_text("name,shape,work\nfirst,64x3x7x7,10\nbias,64,0\nlayer,256x128,30\nscale,1000,0\nlast,1000x512,60\n")
    return folder


@needs_runtime
def test_steps_on_the_cpu_have_times_and_no_figures_of_a_device(pack, profiles, tmp_path):
    kept = tmp_path / "steps.json"
    said = run(
        pack, STEP, "--device", "cpu", "--rounds", "2", "--backward-ms", "5", "--profiles", str(profiles), "--models", "small", "--output", str(kept)
    )
    found = json.loads(kept.read_text())
    (model,) = found["models"]
    assert (found["device"], found["ranks"], model["gradients"], model["copy_ms"]) == ("cpu", 1, 5, None)
    assert [row["scheme"] for row in model["schemes"]] == ["none", "fp16", "topk-residual", "power-sgd", "acp-sgd", "ef-sign"]
    why = "the profiler shows no work of the exchange on the device"
    for row in model["schemes"]:
        assert row["device"] is None and row["why_no_device_figures"] == why
        assert row["step_ms"][0] > 0 and row["on_device"] == 0 and row["gradients"] == 5 and row["buckets"] >= 1
    assert found["ddp"] == {"skipped": "nothing was on a device"}
    assert said.count(f"no figures of the device: {why}") == 6


@needs_runtime
@pytest.mark.parametrize("ranks", (1, 2))
def test_steps_run_over_gloo_from_the_pack(ranks, pack, profiles, tmp_path):
    kept = tmp_path / "steps.json"
    over_gloo(
        pack, ranks, STEP, "--device", "cpu", "--rounds", "1", "--backward-ms", "5", "--profiles", str(profiles), "--models", "small",
        "--schemes", "none", "topk-residual", "--output", str(kept),
    )  # fmt: skip
    found = json.loads(kept.read_text())
    assert found["ranks"] == ranks and len(found["models"][0]["schemes"]) == 2


DDP = """
import argparse, pathlib, sys
sys.path.insert(0, "tools")
import penstock.torch as hvd, torch
from benches.cuda import ddp_on_devices
hvd.init()
options = argparse.Namespace(models=["small"], profiles=pathlib.Path(sys.argv[1]), backward_ms=2.0, rounds=3)
found = ddp_on_devices.measure(options, torch.device("cpu"), "gloo")
if hvd.rank() == 0:
    print("reached", found["plain_ms"] > 0, found["hook_ms"] > 0, len(found["plain_over_hook"]))
hvd.shutdown()
"""


@needs_runtime
def test_ddp_takes_turns_with_the_hook(pack, profiles, tmp_path):
    (tmp_path / "ddp.py").write_text(DDP)  # over gloo, for NCCL needs devices
    assert "reached True True 3" in over_gloo(pack, 2, str(tmp_path / "ddp.py"), str(profiles))


@needs_runtime
def test_methods_and_training_take_two_ranks_over_gloo_from_the_pack(pack):
    methods = over_gloo(pack, 2, f"{SCRIPTS}/methods_on_device.py", "--device", "cpu", "--steps", "2")
    assert methods.count("of the CPU") == 40, methods
    assert over_gloo(pack, 2, f"{SCRIPTS}/train_on_device.py", "--device", "cpu", "--steps", "12").count("at most 0.00% apart") == 6


@needs_runtime
def test_without_a_device_steps_are_skipped_with_a_reason_for_people_and_programs(pack, tmp_path):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a device: tools/gpu-check")
    kept = tmp_path / "steps.json"
    assert run(pack, STEP, "--output", str(kept)).startswith("skipped: torch")
    assert "finds no CUDA device" in json.loads(kept.read_text())["skipped"]


@needs_runtime
def test_a_model_that_is_not_there_is_named_with_those_there_are(pack):
    done = subprocess.run([sys.executable, STEP, "--models", "vgg"], cwd=pack, env=environment(pack), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "'vgg'" in done.stderr and "resnet50" in done.stderr
