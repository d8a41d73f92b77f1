"""One seed under every scheme: real ranks against the simulation of each method.

One scheme of each family trains on digits (forty steps). `tools/nightly`, which sets TEST_LONG, takes every scheme: some
on text (twenty steps), which together use every part of the runtime, and the others on digits for longer. All schemes
of a task run in one launch. The simulations are cached under build/, by their code and settings.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest
from long_runs import IS_LONG

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from benches import convergence  # noqa: E402
from quickstart_job import launch  # noqa: E402
from quickstart_job.recipes import KNOWN, recipe  # noqa: E402

ON_TEXT = (
    "s-sgd", "dear", "topk-residual", "dgc", "power-sgd", "sign-sgd-majority", "ok-topk", "wfbp", "fusion", "acp-sgd", "fgbuff",
)  # fmt: skip
ONE_OF_EACH_FAMILY = (
    "s-sgd",  # dense
    "topk-residual",  # selection
    "dgc",  # a memory with momentum
    "gaussian-k",  # an estimated threshold
    "power-sgd",  # low rank
    "sign-sgd-majority",  # votes
    "qsgd",  # quantised
    "ef21-sgdm",  # a memory with a shift
    "ok-topk",  # a composite collective
    "dear",  # updates in the next forward
    "sparseloco-every-3",  # ranks that train apart
)
NAMES = KNOWN if IS_LONG else ONE_OF_EACH_FAMILY
SEED = 1

# At the end of the run. Sums in another order differ by 1e-7 at first. A selection then differs in an entry near its
# threshold, and training multiplies the difference. Thirty times the tolerance of the first losses is still far below
# the 0.1 to 1 by which a wrong factor, a lost residual or a missing momentum shows.
LAST_TOLERANCE = 0.03


def setting_of(name: str) -> convergence.Setting:
    if not IS_LONG:
        return convergence.Setting("digits", 40)  # ok-topk finds new thresholds after step 32
    return convergence.Setting("text", 20) if name in ON_TEXT else convergence.Setting("digits", 60)


@pytest.fixture(scope="module")
def real_runs() -> dict[str, dict]:
    runs: dict[str, dict] = {}
    for setting in {setting_of(name): None for name in NAMES}:
        runs |= convergence.real([recipe(name) for name in NAMES if setting_of(name) == setting], setting, SEED)
    return runs


@pytest.mark.parametrize("name", NAMES)
def test_the_runtime_trains_like_the_simulation(name: str, real_runs: dict[str, dict]) -> None:
    real = real_runs[name]["losses"]
    setting = setting_of(name)
    simulated = convergence.simulated(recipe(name), setting, SEED)["losses"]
    assert len(real) == len(simulated) == setting.steps
    gap = convergence.first_gap(real, simulated)
    # A sampled threshold may send other entries near the threshold. Then single losses differ a little more.
    allowed = LAST_TOLERANCE if name in convergence.SAMPLING else convergence.FIRST_TOLERANCE
    assert gap <= allowed, f"first losses differ by {gap:.2e} of their size, expected at most {allowed:g}"
    tails = [sum(losses[-10:]) / 10 for losses in (real, simulated)]
    # When the loss is near zero, only the noise of single batches remains.
    scale = max(tails[1], simulated[0] / 4)
    tolerance = LAST_TOLERANCE * (2 if name in convergence.SAMPLING else 1)
    assert abs(tails[0] - tails[1]) <= tolerance * scale, f"last ten losses: {tails}"


@pytest.mark.parametrize("name", NAMES)
def test_all_ranks_end_with_the_same_bits(name: str, real_runs: dict[str, dict]) -> None:
    assert real_runs[name]["replicas_equal"]


def test_training_over_ucx_under_torchrun_has_the_bits_of_mpi(real_runs: dict[str, dict]) -> None:
    """On digits. With TEST_LONG on text, and also the schemes that do not train on text here."""
    setting = convergence.Setting("text" if IS_LONG else "digits", 4)
    own = [name for name in NAMES if setting_of(name).task == setting.task]
    others = [name for name in KNOWN if name not in own] if IS_LONG else []
    over_mpi = {name: real_runs[name]["losses"] for name in own}
    over_mpi |= {name: run["losses"] for name, run in convergence.real([recipe(name) for name in others], setting, SEED).items()}
    with tempfile.TemporaryDirectory() as folder:
        summary = launch.run_job(
            ranks=setting.ranks, task=setting.task, schemes=own + others, steps=setting.steps, seed=SEED, out=Path(folder),
            by=launch.command_of_torchrun,
        )  # fmt: skip
    losses = {entry["name"]: entry["losses"] for entry in summary["schemes"]}
    assert losses == {name: run[: setting.steps] for name, run in over_mpi.items()}


def test_schemes_that_compute_different_things_do_not_share_a_simulation() -> None:
    """Two kinds of schemes may share one: dense schemes, and top-k under different schedulers."""
    setting = convergence.Setting("digits", 60)
    groups: dict[str, set[str]] = {}
    for name in KNOWN:
        groups.setdefault(convergence.simulated_key(recipe(name), setting, SEED), set()).add(name)
    shared = [names for names in groups.values() if len(names) > 1]
    assert shared == [{"s-sgd", "wfbp", "fusion", "dear"}, {"topk-residual", "fgbuff"}], shared
