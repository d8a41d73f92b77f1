"""What the job tells at the end, from histories whose figures are known."""

import dataclasses
import json
import math
import pathlib
import struct
import subprocess
import sys

import pytest

from quickstart_job import report
from quickstart_job.figures import Reached, Result, as_json, from_json, reached, smoothed, steps_until, target_of, window
from quickstart_job.progress import TimeLeft

TOOLS = pathlib.Path(__file__).resolve().parents[1]
SETTINGS = {"task": "text", "unit": "bits/char", "ranks": 4, "link": "100mbit", "steps": 20, "seed": 1}


def run(name, losses, ms, moved, dense=False):
    return Result(
        name=name, label=name, optimizer="AdamW 0.01", dense=dense, steps=20, bits=2.5, accuracy=0.5,
        payload_bytes_per_step=moved, moved_bytes_per_step=moved, dense_moved_bytes_per_step=1e6,
        gradient_bytes_per_step=7e5, step_ms=[ms] * len(losses), losses=losses,
    )  # fmt: skip


# Dense falls by 0.1 a step from 3.0: after 16 of its 20 steps, 80 %, it has 1.5 nats.
DENSE = run("s-sgd", [3.0 - 0.1 * step for step in range(20)], 300.0, 1e6, dense=True)
# Half as fast a step, but four times as many of them in a second: there after 31 steps of 75 ms.
FAST = run("dgc", [3.0 - 0.05 * step for step in range(40)], 75.0, 5e4)
SLOW = run("signs", [3.0 - 0.01 * step for step in range(40)], 75.0, 5e4)


def test_the_loss_that_is_waited_for_is_that_of_dense_after_four_fifths_of_its_steps():
    assert window(20) == 1 and target_of(DENSE) == pytest.approx(1.5)


def test_time_to_the_loss_counts_the_steps_until_it_was_first_there():
    assert reached(DENSE, DENSE) == Reached(16, pytest.approx(16 * 0.3), pytest.approx(1.0))
    assert reached(FAST, DENSE) == Reached(31, pytest.approx(31 * 0.075), pytest.approx(16 * 300 / (31 * 75)))


def test_a_loss_that_was_never_there_has_no_time():
    assert reached(SLOW, DENSE) is None
    line = next(line for line in report.table([DENSE, SLOW], "bits/char").splitlines() if line.startswith("signs"))
    assert "not in 40" in line and line.split()[-2:] == ["-", "-"]


def test_a_single_good_batch_is_not_the_loss():
    losses = [3.0, 3.0, 0.9, 3.0, 3.0, 1.0, 1.0, 1.0]
    assert steps_until(losses, 1.0, 1) == 3
    assert steps_until(losses, 1.0, 3) == 8
    assert steps_until(losses, 0.5, 3) is None


def test_a_mean_over_a_window_is_not_taken_before_there_are_as_many_losses():
    assert steps_until([0.1, 0.1, 9.0, 9.0], 1.0, 3) is None
    assert smoothed([4.0, 2.0, 3.0, 1.0], 2) == [4.0, 3.0, 2.5, 2.0]


def test_losses_that_are_no_numbers_are_never_there():
    assert steps_until([math.nan] * 5, 1.0, 1) is None
    broken = dataclasses.replace(SLOW, losses=[math.nan] * 40)
    assert "not in 40" in report.table([DENSE, broken], "bits/char")
    json.dumps(as_json(SETTINGS, [DENSE, broken]))


def test_the_table_has_bytes_moved_the_step_and_the_ratio_to_dense():
    cells = report.rows([DENSE, FAST], "bits/char")
    assert cells[1] == ("s-sgd", "2.500", "1 MB", "1.0 x", "300 ms", "16", "4.8 s", "1.00 x")
    assert cells[2] == ("dgc", "2.500", "50 kB", "20.0 x", "75 ms", "31", "2.3 s", "2.06 x")
    head = " ".join(cells[0])
    assert "moved" in head and f"{1.5 / math.log(2):.2f} bits/char" in head and "after 20 steps" in head


def test_the_step_of_ranks_that_train_apart_has_its_share_of_the_exchange():
    apart = dataclasses.replace(FAST, step_ms=[40.0, 40.0, 40.0, 120.0] * 10, round_steps=4)
    assert apart.median_step_ms == pytest.approx(60.0) and FAST.median_step_ms == 75.0
    assert dataclasses.replace(apart, step_ms=[]).median_step_ms == 0.0


def test_without_a_dense_run_nothing_is_compared():
    assert len(report.rows([FAST], "bits/char")[0]) == 5
    assert report.gain(SETTINGS, [FAST]) == ""
    assert as_json(SETTINGS, [FAST])["target_bits"] is None


def test_one_sentence_says_what_was_gained():
    said = report.gain(SETTINGS, [DENSE, SLOW, FAST])
    assert said.startswith("Between 4 hosts with links of 100 Mb/s dgc ") and "2.1 times as fast" in said
    assert "1/20 of the bytes" in said and "after 4.8 s" in said and "after 2.33 s" in said
    assert said.count(".") == said.rstrip(".").count(".") + 1  # one sentence


def test_the_sentence_does_not_praise_what_gained_nothing():
    as_fast = dataclasses.replace(FAST, step_ms=[4 * 75.0] * 40)
    assert "dense was as fast as any" in report.gain(SETTINGS, [DENSE, as_fast])
    assert "no other scheme reached" in report.gain({**SETTINGS, "link": None}, [DENSE, SLOW])


def test_the_summary_says_the_same_as_the_table_and_is_read_back(tmp_path):
    report.write_summary(tmp_path / "summary.json", SETTINGS, [DENSE, FAST, SLOW])
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["target_bits"] == pytest.approx(1.5 / math.log(2)) and summary["link"] == "100mbit"
    fast, slow = summary["schemes"][1:]
    assert fast["reached"]["steps"] == 31 and fast["reached"]["against_dense"] == pytest.approx(16 * 300 / (31 * 75))
    assert fast["reduction"] == pytest.approx(20) and fast["median_step_ms"] == 75 and slow["reached"] is None
    assert from_json(summary) == (SETTINGS, [DENSE, FAST, SLOW])


def printed_again(file):
    command = [sys.executable, "-m", "quickstart_job.report", file]
    return subprocess.run(command, cwd=TOOLS, capture_output=True, text=True, timeout=60)


def test_the_table_of_a_summary_is_printed_as_markdown(tmp_path):
    file = tmp_path / "summary.json"
    report.write_summary(file, SETTINGS, [DENSE, FAST])
    ran = printed_again(file)
    assert ran.returncode == 0, ran.stderr
    lines = [line for line in ran.stdout.splitlines() if line.startswith("|")]
    assert len(lines) == 4 and len({line.count("|") for line in lines}) == 1 and lines[3].startswith("| dgc | 2.500 | 50 kB |")


def test_the_time_left_counts_what_is_planned_whatever_was_taken_beyond_it():
    left = TimeLeft(schemes=2, steps=10)
    left.begin()
    for _ in range(15):  # five beyond
        left.step(100.0)
    assert left.seconds() == pytest.approx(10 * 0.1)
    left.begin()
    left.step(50.0)
    assert left.seconds() == pytest.approx(9 * 0.05)


@pytest.mark.parametrize("text", [None, "{", "{}", '{"schemes": [{}]}'])
def test_what_is_no_summary_is_named(text, tmp_path):
    file = tmp_path / "summary.json"
    if text is not None:
        file.write_text(text)
    ran = printed_again(file)
    assert ran.returncode == 2 and str(file) in ran.stderr and "Traceback" not in ran.stderr


def test_the_picture_has_three_panels_over_time_steps_and_bytes(tmp_path, monkeypatch):
    from matplotlib import pyplot

    drawn = []
    monkeypatch.setattr(pyplot, "close", drawn.append)  # to look at it before it goes
    file = tmp_path / "losses.png"
    report.plot_losses(file, SETTINGS, [DENSE, FAST, SLOW])
    width, height = struct.unpack(">II", file.read_bytes()[16:24])
    assert width > 1000 and height > 300
    panels = drawn[0].axes
    assert [panel.get_xlabel() for panel in panels] == ["seconds of training", "steps", "MB moved by one rank"]
    for panel, last in zip(panels, (40 * 0.075, 40, 40 * 0.05)):
        curves = [line for line in panel.get_lines() if line.get_linestyle() == "-"]
        assert len(curves) == 3 and curves[1].get_xdata()[-1] == pytest.approx(last)
        assert curves[1].get_ydata()[-1] == pytest.approx(FAST.losses[-1] / math.log(2))
    assert len(drawn[0].legends) == 1 and [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["s-sgd", "dgc", "signs"]
