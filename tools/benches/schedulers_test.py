"""What tools/bench schedulers makes of its figures, and the file of moments it reads."""

import argparse
import sys
import tomllib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benches import resnet50_backward, schedulers  # noqa: E402


def contestant(name, step_ms, **more):
    figures = {"name": name, "buckets": [3], "plans_in_warm_up": 1, "plans_while_timed": 0, "step_ms": step_ms, "predicted_ms": 90.0}
    stages = dict.fromkeys(("exposed_ms", "encode_ms", "exchange_ms", "decode_ms"), [[1.0]] * len(step_ms))
    return figures | stages | more


def test_a_ratio_is_formed_within_its_round():
    # The second round was slow for both: no ratio shows it.
    assert schedulers.ratios([[110.0], [220.0]], [[100.0], [200.0]]) == pytest.approx([1.1, 1.1])


def test_the_figure_of_a_round_is_the_median_of_its_steps():
    assert schedulers.per_round([[1.0, 100.0, 2.0], [4.0, 3.0]]) == [2.0, 3.5]


def test_ratios_of_unequal_numbers_of_rounds_are_refused():
    with pytest.raises(ValueError):
        schedulers.ratios([[1.0]], [[1.0], [1.0]])


def test_the_table_gives_every_scheduler_its_ratio_to_the_reference():
    result = {"contestants": [contestant("fusion", [[90.0], [99.0], [120.0]], buckets=[2, 4]), contestant("wfbp", [[100.0], [110.0], [100.0]])]}
    heading, fusion, wfbp = schedulers.table(result, "wfbp")
    assert "step / wfbp" in heading
    column = heading.index("step / wfbp")
    assert fusion[column] == "0.900 (0.900 to 1.200)" and wfbp[column] == "1.000 (1.000 to 1.000)"
    assert fusion[:5] == ("fusion", "2+4", "1, 0", "99.0 (90.0 to 120.0)", "90.0 (-9.1%)")


def test_the_profile_that_plan_reads_has_the_moments_of_the_file():
    rows = resnet50_backward.profile(resnet50_backward.read(), 200.0).splitlines()
    assert rows[:3] == ["# forward_ms = 0", "# backward_ms = 200.0", "name,shape,work"] and len(rows) == 3 + 161
    work = [float(row.split(",")[2]) for row in rows[3:]]
    assert sum(work) == pytest.approx(1.0, abs=0.02)
    ready = [1 - sum(work[:number]) for number in range(161)]
    assert ready == pytest.approx([one.share for one in resnet50_backward.read()], abs=0.02)


def test_the_profile_gives_forward_its_length():
    rows = resnet50_backward.profile(resnet50_backward.read(), 820.0, 410.0).splitlines()
    assert rows[:2] == ["# forward_ms = 410", "# backward_ms = 820.0"]


def test_equal_gradients_become_ready_evenly_spaced(tmp_path):
    file = schedulers.gradients_file("4x100", tmp_path)
    assert [(one.elements, one.share) for one in resnet50_backward.read(file)] == [(100, 1.0), (100, 0.75), (100, 0.5), (100, 0.25)]


def test_a_name_of_a_file_stays_one(tmp_path):
    assert schedulers.gradients_file("0x100", tmp_path) == Path("0x100") and not list(tmp_path.iterdir())


def test_options_of_a_scheduler_go_into_its_table():
    scheme = tomllib.loads(schedulers.scheme("dense", "dear:threshold_bytes=1048576:autotune=false"))
    assert scheme["scheme"]["scheduler"] == "dear"
    assert scheme["scheduler"]["dear"] == {"threshold_bytes": 1048576, "autotune": False}
    assert schedulers.plugin("dear:threshold_bytes=1048576") == schedulers.plugin("dear")


@pytest.mark.parametrize("wrong", ["dear:threshold_bytes", "dear:=5", "dear:threshold_bytes=", "dear:"])
def test_an_option_of_a_scheduler_without_name_or_value_is_refused(wrong):
    with pytest.raises(ValueError, match="NAME:OPTION=VALUE"):
        schedulers.scheme("dense", wrong)


def test_what_is_left_for_forward_is_compared_among_dense_schemes():
    assert "dear" in schedulers.SCHEDULERS["dense"]


def test_the_doubt_of_a_median_shrinks_with_the_root_of_the_rounds():
    few = schedulers.half_spread([0.98, 1.0, 1.02])
    assert few == pytest.approx(2.5 * 0.02 / 3**0.5)
    assert schedulers.half_spread([0.98, 1.0, 1.02] * 100) < few / 9
    assert schedulers.half_spread([1.0]) == 0.0


def test_the_floor_is_what_the_bytes_take_on_the_link():
    assert schedulers.floor_ms(12.5e6, 1e8) == pytest.approx(1000.0)


@pytest.mark.parametrize("kind", schedulers.SCHEMES)
def test_the_scheme_of_a_contestant_is_toml_that_names_its_scheduler(kind):
    (entry,) = schedulers.contestants(kind, ["fgbuff"])
    scheme = tomllib.loads(entry["scheme"])["scheme"]
    assert scheme["scheduler"] == entry["name"] == "fgbuff"
    assert entry["dense"] == (scheme["compressor"] == "none")


def test_the_committed_moments_are_those_of_the_gradients_of_resnet_50():
    rows = resnet50_backward.read()
    assert len(rows) == 161 and sum(row.elements for row in rows) == 25557032
    assert (rows[0].elements, rows[-2].elements, rows[-1].elements) == (64 * 3 * 49, 2048 * 1000, 1000)
    assert max(row.share for row in rows) == rows[0].share == 1.0  # the first layer is the last of backward
    assert min(row.share for row in rows) in (rows[-1].share, rows[-2].share)  # and the last one, the first


@pytest.mark.parametrize("line", ["a,1", "a,0,0.5", "a,1,0", "a,1,1.5", "a,b,0.5", "a,1,nan"])
def test_a_wrong_row_is_refused_with_its_line(tmp_path, line):
    path = tmp_path / "moments.csv"
    path.write_text(f"# head\nname,elements,share\nfirst,1,1.0\n{line}\n")
    with pytest.raises(ValueError, match="moments.csv:4"):
        resnet50_backward.read(path)


def test_a_file_without_gradients_says_how_to_write_one(tmp_path):
    path = tmp_path / "moments.csv"
    path.write_text("# head\n")
    with pytest.raises(ValueError, match="resnet50_backward.py"):
        resnet50_backward.read(path)


def test_a_scheduler_that_is_not_built_is_left_out_with_a_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(schedulers, "PLUGINS", tmp_path)
    monkeypatch.setattr(schedulers, "REPOSITORY", tmp_path)
    (tmp_path / "scheduler-wfbp.so").touch()
    assert schedulers.there_are("topk", argparse.Namespace(schedulers="wfbp,omgs")) == ["wfbp"]
    assert "omgs is left out" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--link", "fast"], ["--rounds", "0"], ["--backward-ms", "-1"], ["--forward-ms", "-1"], ["--schedulers", "dear:threshold_bytes"], ["--gradients", "/nowhere.csv"]])
def test_an_option_out_of_its_bounds_is_refused(words):
    with pytest.raises(SystemExit) as ended:
        schedulers.parse(words)
    assert ended.value.code == 2
