"""Warm-ups, switches, narrow values, clippings and divided gradients on real ranks equal the simulation, step by
step."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).resolve().parent
for room in (HERE, HERE.parent, HERE.parents[1] / "tools"):
    sys.path.insert(0, str(room))

from oracle.schemes import items_of, make_scheme  # noqa: E402
from oracle.training import simulate  # noqa: E402
from quickstart_job import launch  # noqa: E402
from quickstart_job.data import make_task  # noqa: E402
from settings import RANKS, SEED, SETTINGS, STEPS, TASK  # noqa: E402

DEADLINE_S = 600
TOLERANCE = 1e-4  # relative: a sum's last bit; wrong factors and doubled momenta show in parts of a hundred at least


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    file = tmp_path_factory.mktemp("settings") / "losses.json"
    line = launch.command(RANKS, [str(HERE / "ranks_of_settings.py"), str(file)])
    ran = subprocess.run(line, env=launch.environment(), capture_output=True, text=True, timeout=DEADLINE_S)
    assert ran.returncode == 0, f"status {ran.returncode}\n{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}"
    return json.loads(file.read_text())


@pytest.mark.parametrize("name", SETTINGS)
def test_the_runtime_trains_like_the_simulation(name: str, real: dict[str, list[float]]) -> None:
    setting = SETTINGS[name]
    torch.set_num_threads(1)
    simulated = simulate(
        make_task(TASK),
        lambda model: make_scheme(setting.table, items_of(model), RANKS),
        ranks=RANKS,
        steps=STEPS,
        seed=SEED,
        make_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=setting.rate),
    ).losses
    gaps = [abs(ours - theirs) / theirs for ours, theirs in zip(real[name], simulated, strict=True)]
    assert max(gaps) <= TOLERANCE, f"losses differ by {max(gaps):.1e} from step {gaps.index(max(gaps))} on"
    assert simulated[-1] < 0.98 * simulated[0], "a run that does not move shows nothing"
