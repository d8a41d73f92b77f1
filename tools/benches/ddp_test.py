"""tools/bench ddp: what it makes of figures, and what it refuses."""

import pathlib
import subprocess
import sys

import pytest

ROOM = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ROOM.parent))

from benches import ddp  # noqa: E402


def test_ratios_are_formed_within_a_round_and_only_of_what_was_measured():
    rows = ddp.links_table({"gloo": [100.0, 400.0, 300.0], "dense": [200.0, 400.0, 100.0], "torch's PowerSGD": [1.0, 1.0, 1.0]})
    assert len(rows) == 2
    assert rows[1] == ("gloo, dense", "300.0 (100.0 to 400.0)", "200.0 (100.0 to 400.0)", "1.00 (0.50 to 3.00)", ">= 0.98")


def test_what_python_costs_leaves_out_what_the_c_door_takes():
    figures = {"no hook": [10.0], "hook": [17.0], "plain": [8.0], "optimizer": [12.0], "C door": [1.5]}
    assert [row[3:5] for row in ddp.calls_table(figures)[1:]] == [("7.0 (7.0 to 7.0)", "5.5"), ("4.0 (4.0 to 4.0)", "2.5")]


@pytest.mark.parametrize(("words", "said"), [(["--only", "nccl"], "'nccl'"), (["--links", "fast"], "'fast'"), (["--ranks", "0"], "above 0")])
def test_an_argument_that_means_nothing_is_named(words, said):
    ran = subprocess.run([sys.executable, ROOM / "bench.py", "ddp", *words], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2 and said in ran.stderr, ran.stderr
