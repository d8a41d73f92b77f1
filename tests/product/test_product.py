"""Every compressor with every choice of its options, on 1 to 4 ranks: over threads the result is the oracle's, and over
MPI and UCX it has the bits of threads on every rank.

tools/nightly takes the whole product. Other runs take three ranks and every eighth case.
"""

from __future__ import annotations

import functools
import itertools
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from long_runs import IS_LONG
import torch

HERE = Path(__file__).resolve().parent
for room in (HERE, HERE.parent, HERE.parents[1] / "tools", HERE.parent / "transports"):
    sys.path.insert(0, str(room))

from cases import SHAPES, STEPS, Case, drawn, every_case  # noqa: E402
from oracle.method import Item  # noqa: E402
from oracle.schemes import make_scheme  # noqa: E402
from quickstart_job import launch  # noqa: E402
from run_ranks import start  # noqa: E402
from steps import Runtime, results  # noqa: E402

WORLDS = (1, 2, 3, 4) if IS_LONG else (3,)
CASES = every_case()[:: 1 if IS_LONG else 8]
DEADLINE_S = 900

Steps = list[dict[str, np.ndarray]]  # the results of each step, by gradient
_hubs = itertools.count()


@functools.cache
def over_threads(ranks: int) -> dict[str, list[Steps]]:
    """The results of all cases on each rank; ranks are threads of this process."""
    hub = f"product {next(_hubs)}"

    def run(rank: int) -> list[Steps]:
        loopback = f'[collective.loopback]\nhub = "{hub}"\nrank = {rank}\nsize = {ranks}\n'
        text = f'[scheme]\ncollective = "loopback"\n[runtime]\ndeadline_s = 60\nlog_level = "error"\n{loopback}'
        runtime = Runtime("", text, "tests")
        try:
            return [results(runtime, case, "loopback") for case in CASES]
        finally:
            runtime.close()

    with ThreadPoolExecutor(ranks) as pool:
        of_ranks = list(pool.map(run, range(ranks)))
    return {case.name: [found[number] for found in of_ranks] for number, case in enumerate(CASES)}


def over_processes(transport: str, ranks: int) -> list[dict[str, np.ndarray]]:
    """The arrays that each rank has written."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "cases.json").write_text(json.dumps([asdict(case) for case in CASES]))
        script = [str(HERE / "ranks_of_cases.py"), transport, folder]
        if transport == "mpi":
            started = [subprocess.Popen(launch.command(ranks, script), env=launch.environment())]
        else:
            started = start(ranks, [sys.executable, *script], "127.0.0.1")
        try:
            assert [process.wait(DEADLINE_S) for process in started] == [0] * len(started)
        finally:
            for process in started:
                process.kill()
        return [dict(np.load(Path(folder) / f"rank.{rank}.npz")) for rank in range(ranks)]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("ranks", WORLDS)
@pytest.mark.parametrize("transport", ["mpi", "ucx"])
def test_a_transport_gives_the_bits_of_threads_on_every_rank(transport: str, ranks: int) -> None:
    expected = over_threads(ranks)
    wrong = []
    for rank, found in enumerate(over_processes(transport, ranks)):
        assert len(found) == len(CASES) * STEPS * len(SHAPES)
        for case, step, name in itertools.product(CASES, range(STEPS), SHAPES):
            if not same_bits(found[f"{case.name}/{step}/{name}"], expected[case.name][0][step][name]):
                wrong.append(f"{case.name}: '{name}' of step {step} on rank {rank}")
    assert not wrong, "\n".join(wrong)


# The oracle in Python does not simulate these; the plugins' own tests compare them with plain loops.
NOT_SIMULATED = {
    "blocktopk, value_type = sign2",
    "demo, value_type = sign2",
    "dgc, resample = False",
    "powersgd, warm_start = False",
}

# Relative to the largest element of a gradient: sums of three steps in another order. Factors of matrices, which are made
# orthonormal, have larger errors, and in 16 bits a last bit more or less.
TOLERANCE, OF_FACTORS, OF_NARROW_FACTORS = 1e-5, 2e-5, 1e-2


def tolerance_of(case: Case) -> float:
    if case.compressor not in ("powersgd", "acpsgd", "powersgd-alternating"):
        return TOLERANCE
    return OF_FACTORS if case.options.get("value_type", "fp32") == "fp32" else OF_NARROW_FACTORS


@pytest.mark.parametrize("ranks", WORLDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_over_threads_ranks_agree_and_the_result_is_that_of_the_oracle(case: Case, ranks: int) -> None:
    of_ranks = over_threads(ranks)[case.name]
    for step, name in itertools.product(range(STEPS), SHAPES):
        assert all(same_bits(found[step][name], of_ranks[0][step][name]) for found in of_ranks), f"'{name}' of step {step}"
    if case.name in NOT_SIMULATED:
        return
    items = [Item(name, index, shape) for index, (name, shape) in enumerate(SHAPES.items()) if 0 not in shape]
    oracle = make_scheme(case.table("mpi"), items, ranks)
    for step in range(STEPS):
        gradients = [{name: torch.from_numpy(grad) for name, grad in drawn(step, rank).items()} for rank in range(ranks)]
        for name, expected in oracle.step(gradients).items():
            gap = np.abs(of_ranks[0][step][name] - expected.numpy()).max()
            largest = float(expected.abs().max())
            assert gap <= tolerance_of(case) * largest, f"'{name}' of step {step} differs by {gap:.1e} of {largest:.1e}"
