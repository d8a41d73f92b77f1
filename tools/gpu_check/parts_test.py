"""That scripts take what parts give them: each is run alone, as a rank would be, and says that there is no device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tools"))

from gpu_check.machine import Machine  # noqa: E402
from gpu_check.parts import NAMES, PARTS, Setting  # noqa: E402

torch = pytest.importorskip("torch")


def commands(folder: Path, is_short: bool) -> dict[str, list[str]]:
    """What a rank of each part runs, by part."""
    setting = Setting(REPOSITORY, folder, folder, folder, Machine(REPOSITORY, python=sys.executable), is_short)
    found = {}
    for part in PARTS:
        for job in part.jobs(setting, part.name):
            launched = next((number for number, word in enumerate(job.command) if word.endswith("over_gloo.py")), None)
            if launched is not None:
                found[part.name] = [sys.executable, *job.command[launched + 1 :]]
    return found


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device: tools/gpu-check")
@pytest.mark.parametrize("is_short", (True, False))
def test_every_script_takes_its_words_and_says_that_there_is_no_device(is_short, tmp_path):
    ran = {tuple(command): name for name, command in commands(tmp_path, is_short).items()}
    assert set(ran.values()) <= set(NAMES) and len(ran) >= 12
    where = {**os.environ, "PYTHONPATH": str(REPOSITORY / "frontends/python")}
    # Together: what takes time is that each imports torch.
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": where}
    started = {name: subprocess.Popen(command, **pipe) for command, name in ran.items()}
    said = {name: process.communicate(timeout=240)[0] for name, process in started.items()}
    assert {name: process.returncode for name, process in started.items()} == dict.fromkeys(started, 0), said
    for name, words in said.items():
        assert words.startswith("skipped: torch"), (name, words)


def test_a_limit_over_all_makes_parts_brief(tmp_path):
    brief, whole = commands(tmp_path, True), commands(tmp_path, False)
    assert brief["methods"][-2:] == ["--steps", "3"] and "--steps" not in whole["methods"]
    assert "gpt2" not in brief["steps_1"] and "--models" in brief["steps_1"] and "--models" not in whole["steps_1"]
