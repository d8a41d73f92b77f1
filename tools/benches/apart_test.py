"""tools/bench apart: its arithmetic, what it refuses, and a run between real processes over a line with a distance."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOM = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOM))

from benches import apart  # noqa: E402
from hosts.needed import needs_far_hosts  # noqa: E402

BENCH = (sys.executable, ROOM / "benches/bench.py", "apart")
FIGURES = {"round_s": [5.0, 4.0], "wait_s": [1.0, 0.0], "cpu_s": [0.5, 0.5], "alone_s": 0.4, "payload_bytes": 100, "delay": 3}


def test_computing_is_the_time_of_the_steps_alone_over_the_time_of_the_round():
    assert apart.computing(FIGURES, 10) == [0.8, 1.0]
    assert apart.computing({**FIGURES, "alone_s": 0.6}, 10) == [1.0, 1.0]  # a round that was quicker than its steps alone


def test_time_that_is_neither_wait_nor_steps_goes_beside():
    assert apart.waits_in(FIGURES) == [0.2, 0.0]
    assert apart.besides(FIGURES, 9) == pytest.approx([0.4, 0.4]) and apart.besides(FIGURES, 10) == [0.0, 0.0]


def test_the_table_has_a_row_for_each_contestant_with_its_payload_over_all_parameters():
    table = apart.rows({"elements": 3650, "ways": {"sparseloco": FIGURES}}, 10)
    assert table[1][:2] == ("sparseloco", "3") and "1 / 146" in table[1] and "0.900 (0.800 to 1.000)" in table[1]


@pytest.mark.parametrize(
    ("words", "said"), [(["--link", "far"], "'far'"), (["--schemes", "dgc"], "'dgc'"), (["--every", "5"], "--every"), (["--rounds", "0"], "--rounds")]
)
def test_an_argument_that_means_nothing_is_named_with_what_was_expected(words, said):
    ran = subprocess.run([*BENCH, *words], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2 and said in ran.stderr


@needs_far_hosts()
def test_ranks_far_apart_hide_an_exchange_under_their_steps():
    words = ["--step-ms", "50", "--every", "6", "--rounds", "1", "--schemes", "sparseloco", "--link", "30mbit:50ms", "--json"]
    ran = subprocess.run([*BENCH, *words], capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    ways = json.loads(ran.stdout[ran.stdout.index("{") :])["ways"]
    assert ways["sparseloco, blocking"]["delay"] == 0 and ways["sparseloco"]["delay"] >= 1
    # Coded positions take a few bytes more or less, because the drifts differ.
    assert ways["sparseloco"]["payload_bytes"] == pytest.approx(ways["sparseloco, blocking"]["payload_bytes"], rel=1e-3)
    assert 1e5 < ways["sparseloco"]["payload_bytes"] < 4 * 25.6e6 / 185
