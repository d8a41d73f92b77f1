"""tools/bench distance: its arithmetic, what it refuses, and the round trips of one scheme between real processes."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOM = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOM))

from benches import bench, distance  # noqa: E402
from benches.step import cells, contestants, models  # noqa: E402
from hosts.needed import needs_far_hosts  # noqa: E402


def test_trips_are_the_slope_over_the_distance_whatever_computing_takes():
    assert distance.slope(20.0, 60.0) == 1.0 and distance.slope(1020.0, 1060.0) == 1.0
    assert distance.slope(50.0, 150.0) == 2.5


def test_a_profile_has_as_many_gradients_as_its_name_says(tmp_path):
    for name, count in distance.PROFILES.items():
        distance.profile(tmp_path, name)
        assert len(models.read(name, tmp_path)) == count


def test_tables_have_a_row_for_each_stream_and_scheme():
    assert distance.stream_rows({"ucx, bbr": [20.0, 28.0, 27.0]})[1] == ("ucx, bbr", "27.0", "20.0", "28.0")
    assert distance.trip_rows({"dense": {"one": 1.04, "many": 2.0}})[1] == ("dense", "1.0", "2.0")


def test_all_schemes_are_the_exchanges_of_conf_and_torchs_own_ways():
    files = {path.stem for path in contestants.CONF.glob("*.toml")} - {"auto", *cells.SAME}
    assert set(distance.parse(["--schemes", "all"]).names) == files | set(contestants.TORCH) | {"dense"}
    assert set(distance.parse([]).names) <= set(contestants.names())


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--link", "30mbit"], "with a distance"), (["--link", "far"], "'far'"), (["--schemes", "topk"], "'topk'"), (["--rounds", "0"], "--rounds"),
     (["--megabytes", "0"], "--megabytes")],
)  # fmt: skip
def test_an_argument_that_means_nothing_is_named_with_what_was_expected(words, said):
    ran = subprocess.run([sys.executable, ROOM / "benches/bench.py", "distance", *words], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2 and said in ran.stderr


@needs_far_hosts()
def test_a_small_sum_waits_for_one_way_which_is_half_a_round_trip(monkeypatch):
    monkeypatch.setitem(os.environ, "PENSTOCK_PLUGIN_DIRECTORY", str(bench.PLUGINS))
    monkeypatch.setattr(distance, "PROFILES", {"one": 1})
    monkeypatch.setattr(distance, "TRIP_HOSTS", 2)
    # All send all. On a busy machine a step may be late by another way in every round, but not in three runs.
    assert any(0.4 < distance.trips(["dense"], 15, bench.PLUGINS)["dense"]["one"] < 1.0 for _ in range(3))
