"""Routes with owners, on hosts of several sizes: the runtime's first losses equal the simulation's first losses. Every
third case; `tools/nightly`, which sets TEST_LONG, takes all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from long_runs import IS_LONG
import torch

HERE = Path(__file__).resolve().parent
for room in (HERE, HERE.parent, HERE.parents[1] / "tools"):
    sys.path.insert(0, str(room))

from oracle.schemes import items_of, make_scheme  # noqa: E402
from oracle.training import simulate  # noqa: E402
from quickstart_job.data import make_task  # noqa: E402
from quickstart_job.recipes import recipe  # noqa: E402
from quickstart_job import toml_text  # noqa: E402
from ranks_in_threads import RanksInThreads  # noqa: E402

EVERY = 1 if IS_LONG else 3
SEED, STEPS = 1, 20
TOLERANCE = 1e-4  # relative: a sum's last bit is smaller, and a wrong factor or memory gives hundredths
# If a sample gives the threshold, the last bit can decide about an entry.
TOLERANCES = {"dgc": 5e-3}

HOSTS = {
    "2+2": (0, 0, 1, 1),
    "3+1": (0, 0, 0, 1),
    "1+1+2": (0, 1, 2, 2),
    "2+2+2+2": (0, 0, 1, 1, 2, 2, 3, 3),
    "in turn": (0, 1, 0, 1, 0, 1),
    "one of 2": (0, 0),
    "one of 3": (0, 0, 0),
    "one of 6": (0, 0, 0, 0, 0, 0),
}

RATES = {"sign-sgd-majority": 1e-3, "signum": 1e-3}


def losses(name: str, hosts: tuple[int, ...], changes: toml_text.Table) -> tuple[list[float], list[float]]:
    """The losses of the runtime, and of the simulation."""
    torch.set_num_threads(1)
    task = make_task("digits")
    table = toml_text.replaced(recipe(name).table(), changes)
    found = []
    items = items_of(task.make_model(SEED))
    with RanksInThreads(table, items, hosts) as real:
        for scheme in (real, make_scheme(table, items, len(hosts), hosts=hosts)):
            run = simulate(
                task,
                lambda model, scheme=scheme: scheme,
                ranks=len(hosts),
                steps=STEPS,
                seed=SEED,
                make_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=RATES.get(name, 0.2)),
            )
            found.append(run.losses)
    return found[0], found[1]


def expect_alike(name: str, hosts: tuple[int, ...], changes: toml_text.Table) -> None:
    real, simulated = losses(name, hosts, changes)
    gaps = [abs(ours - theirs) / theirs for ours, theirs in zip(real, simulated, strict=True)]
    assert max(gaps) <= TOLERANCES.get(name, TOLERANCE), f"losses differ by {max(gaps):.1e} at step {gaps.index(max(gaps))}"
    assert simulated[-1] < 0.99 * simulated[0], "a run that does not move shows nothing"


FEW = ("topk-residual", "dgc", "ef-sign")
BOTH = ("topk-residual", "dgc", "threshold", "gaussian-k", "redsync", "ef-sign", "one-bit", "sign-sgd-majority", "signum")
SUMMED = ("s-sgd", "power-sgd", "acp-sgd", "arc-top-k")

# Momentum belongs to a rank's own gradient, so owners have no momentum.
OWNERS = {"dgc": {"scheme.owner_memory": "residual"}, "signum": {"scheme.owner_memory": "none"}}


@pytest.mark.parametrize("name", ["s-sgd", "topk-residual", "power-sgd"])
def test_ranks_in_threads_train_as_the_simulation_does(name: str) -> None:
    expect_alike(name, HOSTS["2+2"], {})


@pytest.mark.parametrize(
    "name, hosts",
    ([(name, "3+1") for name in BOTH + SUMMED] + [(name, hosts) for name in (*FEW, "power-sgd") for hosts in HOSTS if hosts != "3+1"])[::EVERY],
)
def test_hosts_add_and_owners_compress_what_they_own_of_the_sum(name: str, hosts: str) -> None:
    expect_alike(name, HOSTS[hosts], {"scheme.route": "hierarchical"})


@pytest.mark.parametrize(
    "name, hosts",
    ([(name, "one of 3") for name in BOTH] + [(name, hosts) for name in FEW for hosts in ("one of 2", "one of 6", "1+1+2")])[::EVERY],
)
def test_owners_add_what_ranks_send_and_compress_the_sum(name: str, hosts: str) -> None:
    expect_alike(name, HOSTS[hosts], {"scheme.route": "shard"} | OWNERS.get(name, {}))


def test_values_of_16_bits_are_added_and_rounded_once_on_split() -> None:
    changes = {"scheme.compressor": "fp16", "scheme.scheduler": "dear", "scheme.route": "split", "scheduler": {}}
    expect_alike("s-sgd", HOSTS["one of 3"], changes)
