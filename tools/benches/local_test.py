"""tools/bench local: a run that was stopped ends like one that was not, and what the table says of runs."""

from __future__ import annotations

import fcntl
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benches import local  # noqa: E402
from benches.local_contestants import NAMES, Job, contestant  # noqa: E402

ROW = local.Row(
    name="s-sgd",
    rate=0.003,
    exchange="gradients, every step",
    bits=2.0,
    seed_bits=[2.0],
    anchors_bits=2.0,
    payload_bytes_per_step=1000.0,
    curve=[(step, 3.0 - step / 3000) for step in range(500, 3001, 500)],
    tried={0.003: 2.0},
    replicas_equal=True,
)
STREAMING = ("--task", "digits", "--schemes", "streaming-diloco", "--steps", "40", "--every", "18", "--save-every", "10")


def rows(folder: Path, *more: str) -> list[dict]:
    output = folder.parent / f"{folder.name}.json"
    assert local.main([*STREAMING, "--folder", str(folder), "--output", str(output), *more]) == 0
    return json.loads(output.read_text()) if output.exists() else []


def test_a_run_that_stopped_inside_a_round_ends_to_the_bit_like_one_that_did_not(tmp_path: Path) -> None:
    assert rows(tmp_path / "stopped", "--until", "25") == []  # the exchange that began at step 24 is under way
    (folder,) = (tmp_path / "stopped").glob("streaming-diloco-*")
    assert sorted(file.name for file in folder.glob("*.pt")) == ["rank-0.25.pt", "rank-1.25.pt"]
    (folder / "rank-1.30.pt").write_bytes(b"of a save that was killed")
    (stopped,) = rows(tmp_path / "stopped")
    (whole,) = rows(tmp_path / "whole")
    assert stopped["bits"] == whole["bits"] and stopped["replicas_equal"] and whole["replicas_equal"]
    assert [point for point in stopped["curve"] if point[0] != 25] == whole["curve"]
    assert [step for step, _ in whole["curve"]] == [10, 20, 30, 40] and whole["curve"][-1][1] < whole["curve"][0][1]
    assert stopped["payload_bytes_per_step"] == whole["payload_bytes_per_step"] > 0
    assert not (folder / "rank-1.30.pt").exists()
    # Nothing is trained again: the row of an ended training needs its state.json alone.
    for file in folder.glob("*.pt"):
        file.unlink()
    assert rows(tmp_path / "stopped") == [stopped]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--schemes", "s-sgd,top-k"], "'top-k', expected some of s-sgd, diloco"),
        (["--schemes", ","], "--schemes is empty"),
        (["--steps", "0"], "--steps is 0, expected at least 1"),
        (["--ranks", "-1"], "--ranks is -1, expected at least 1"),
        (["--save-every", "0"], "--save-every is 0, expected at least 1"),
        (["--rates", "0.1,0"], "--rates is '0.1,0', expected numbers above 0"),
        (["--rates", "inf"], "--rates is 'inf', expected numbers above 0"),
        (["--seeds", "1,x"], "--seeds is '1,x', expected whole numbers from 0"),
        (["--every", "17"], "--every is 17, expected at least 18: an exchange of streaming-diloco"),
    ],
)
def test_a_wrong_option_is_refused_with_what_was_expected(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        local.parse(words)
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_a_round_as_short_as_the_contestants_allow_is_taken() -> None:
    assert local.parse(["--every", "18"]).every == 18
    assert local.parse(["--every", "1", "--schemes", "s-sgd,diloco"]).every == 1


def test_a_second_call_in_one_folder_is_refused_while_the_first_trains(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(SystemExit, match="another call trains in"):
            local.main(["--folder", str(tmp_path)])


def test_each_setting_has_a_folder_of_its_own(tmp_path: Path) -> None:
    job = Job("diloco", 0.003, 3000, 2, 1, 30)
    others = [replace(job, **change) for change in ({"rate": 0.01}, {"steps": 30}, {"ranks": 4}, {"seed": 2}, {"every": 60}, {"name": "s-sgd"})]
    assert len({one.folder(tmp_path) for one in (job, *others)}) == 1 + len(others)


def test_dense_gradients_have_no_rounds_so_one_training_serves_tables_of_all_lengths(tmp_path: Path) -> None:
    assert Job("s-sgd", 0.003, 3000, 2, 1, 30).folder(tmp_path) == Job("s-sgd", 0.003, 3000, 2, 1, 5).folder(tmp_path)


def test_the_rate_rises_for_three_hundredths_of_the_steps_and_falls_to_a_tenth() -> None:
    rates = [Job("diloco", 0.01, 1000, 2, 1, 30).rate_at(step) for step in range(1000)]
    assert rates[0] == pytest.approx(0.01 / 30) and rates[29] == rates[30] == pytest.approx(0.01)
    assert rates[515] == pytest.approx(0.0055) and rates[999] == pytest.approx(0.001, rel=1e-3)
    assert rates[:30] == sorted(rates[:30]) and rates[30:] == sorted(rates[30:], reverse=True)


def test_the_arguments_are_those_of_the_heads_of_the_files() -> None:
    for name in (name for name in NAMES[1:] if not contestant(name).file):
        head = (local.REPOSITORY / f"conf/{name}.toml").read_text()
        outer = contestant(name).outer
        said = "outer=None" if outer is None else f"outer=OuterStep(lr={outer.lr:g}, momentum={outer.momentum:g})"
        assert "LocalSteps(" in head and said in head


def test_the_table_has_the_losses_over_dense_and_over_diloco_and_marks_those_too_high() -> None:
    others = [replace(ROW, name=name, bits=bits, anchors_bits=bits + 0.01) for name, bits in (("diloco", 2.03), ("sparseloco", 2.05))]
    table = local.markdown([ROW, *others], local.parse(["--seed", "1"]), "tools/bench local").splitlines()
    dense, diloco, sparse = table[5:8]
    assert "| step 500 | step 1000 | step 2000 |" in table[3]
    assert dense.endswith("| 2.0000 | one seed | - | - | 1,000 |") and "| 2.3333 |" in dense
    assert diloco.endswith("| 2.0400 | 2.0300 | one seed | 1.0150 | - | 1,000 |")
    assert sparse.endswith("| 2.0500 | one seed | **1.0250** | **1.0099** | 1,000 |")
    short = local.markdown([ROW, *others], local.parse(["--steps", "300"]), "tools/bench local")
    assert "**" not in short and "| 1.0250 |" in short and "It was not searched." in short


def test_a_row_needs_all_its_trainings_and_has_the_best_rate(tmp_path: Path) -> None:
    options = local.parse(["--schemes", "diloco", "--seeds", "1,2", "--rates", "0.001,0.01"])
    jobs = local.jobs_of(options)
    for number, job in enumerate(jobs):
        assert local.rows_of(jobs, tmp_path) == []
        job.folder(tmp_path).mkdir()
        bits = {0.001: 2.5, 0.01: 2.25}[job.rate] + 0.25 * job.seed
        state = {"step": 3000, "payload_bytes": 6000 * job.seed, "curve": [{"step": 3000, "bits": bits + 1}]}
        state["final"] = {"bits": bits, "replicas_equal": number > 0}
        (job.folder(tmp_path) / "state.json").write_text(json.dumps(state))
    (row,) = local.rows_of(jobs, tmp_path)
    assert (row.rate, row.bits, row.seed_bits, row.anchors_bits) == (0.01, 2.625, [2.5, 2.75], 3.625)
    assert row.tried == {0.001: 2.875, 0.01: 2.625} and row.payload_bytes_per_step == 3.0
    table = " ".join(local.markdown([row], options, "x").split())
    assert "It is the best of these: diloco 2.8750 at 0.001, 2.6250 at 0.01." in table
