"""tools/bench step: its cells and tables, how it resumes, what it refuses, and a whole race of a tiny model."""

import contextlib
import json
import pathlib
import subprocess
import sys
import tomllib

import pytest

ROOM = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOM))

from benches.step import claims, contestants, headlines, models, race, simulated, table  # noqa: E402
from hosts.needed import needs_far_hosts, needs_hosts  # noqa: E402

TINY = "# a comment\nname,shape,work\nfirst.weight,64x32,100\nattention,,50\nfirst.bias,64,0\nsecond.weight,300x64,50\n"


def record(contestant, step_ms, reference_ms, **more):
    fixed = {"model": "resnet50", "bandwidth": "1gbit", "ranks": 4, "backward_ms": 0.0, "run": "one", "date": "2026-11-23", "command": "tools/bench step"}
    return fixed | {"contestant": contestant, "step_ms": step_ms, "reference_ms": reference_ms, "wire_bytes": [2e6], "cpu_s": [0.5]} | more


def bench(*words, timeout_s=60.0):
    return subprocess.run([sys.executable, ROOM / "benches/bench.py", "step", *map(str, words)], capture_output=True, text=True, timeout=timeout_s, check=False)


def test_a_ratio_is_formed_within_its_round():
    # The second round was slow for both: no ratio shows it.
    assert table.times_as_fast(record("dense", [100.0, 200.0], [150.0, 300.0])) == [1.5, 1.5]


def test_ratios_of_unequal_numbers_of_rounds_are_refused():
    with pytest.raises(ValueError):
        table.times_as_fast(record("dense", [100.0], [150.0, 300.0]))


def test_a_goal_says_whether_it_is_reached_and_where_nothing_was_promised_nothing():
    assert table.goals(record("topk-residual", [100.0], [1600.0]), []) == ">= 16 x ddp: 16"
    assert table.goals(record("topk-residual", [100.0], [1200.0]), []) == ">= 16 x ddp: **missed**, 12"
    assert table.goals(record("topk-residual", [100.0], [1300.0], bandwidth="10gbit"), []) == ""
    assert table.goals(record("dense", [100.0], [99.0], backward_ms=200.0), []) == ""


def test_a_scheme_that_chooses_is_held_against_the_best_of_its_ways_and_against_dense():
    beside = [record("ddp", [1.0], [1.0]), record("dense", [99.0], [1.0]), record("ef-sign", [90.0], [1.0]), record("dgc", [5.0], [1.0], run="another")]
    auto = record("auto", [100.0], [1.0])
    assert table.goals(auto, [*beside, auto]) == ">= 0.95 x the best of its ways: **missed**, 0.9; >= 0.98 x dense: 0.99"
    assert table.goals(auto, [auto]) == ""


def test_a_step_with_backward_is_held_against_the_longer_of_backward_and_exchange():
    alone = record("dgc", [120.0, 100.0, 110.0], [1300.0] * 3)
    assert table.goals(record("dgc", [160.0], [1300.0], backward_ms=150.0), [alone]) == "<= 1.10 x bound: 1.07"
    assert table.goals(record("dgc", [130.0], [1300.0], backward_ms=50.0), [alone]) == "<= 1.10 x bound: **missed**, 1.18"


def test_times_keep_their_microseconds():
    figures = {"ddp": {"step_ms": [1300.12345], "copy_cpu_s": [0.0057312]}}
    (kept,) = race.records_of(figures, {"ranks": 4})
    assert kept == {"ranks": 4, "contestant": "ddp", "step_ms": [1300.123], "copy_cpu_s": [0.005731], "reference_ms": [1300.123]}


def test_cpu_seconds_are_counted_in_copies_of_the_same_step():
    measured = record("topk-residual", [100.0, 100.0], [1300.0] * 2, cpu_s=[0.048, 0.096], copy_cpu_s=[0.02, 0.04])
    assert table.copies(measured) == 2.4 and table.goals(measured, []) == ">= 16 x ddp: **missed**, 13; <= 2.4 copies: 2.4"
    assert table.copies(record("topk-residual", [100.0], [1300.0])) is None
    assert table.copies(record("topk-residual", [100.0], [1300.0], cpu_s=[0.048], copy_cpu_s=[0.0])) is None


def test_a_goal_against_another_contestant_counts_rounds_in_which_both_ran():
    ours = record("power-sgd", [10.0, 20.0], [500.0, 500.0])
    beside, before = record("ddp-powersgd", [60.0, 120.0], [500.0, 500.0]), record("ddp-powersgd", [1.0, 1.0], [500.0, 500.0], run="another")
    assert table.goals(ours, [before, ours, beside]) == ">= 5 x ddp-powersgd: 6"
    assert "did not run beside it" in table.goals(ours, [ours, before])


def test_what_a_contestant_cannot_tell_is_a_dash_and_zero_is_a_figure():
    cells = table.row(record("ddp", [10.0], [10.0]), [])
    assert cells[table.HEAD.index("copies") :] == ("-",) * 5 and cells[4:6] == ("2.00", "0.50")
    assert table.row(record("dense", [10.0], [10.0], encode_ms=[0.0]), [])[table.HEAD.index("encode")] == "0"


def test_a_group_has_the_last_record_of_each_cell_with_the_fastest_first():
    records = [record("dgc", [50.0], [100.0]), record("ddp", [100.0], [100.0]), record("dgc", [10.0], [100.0])]
    (rows,) = table.groups(records).values()
    assert [(row["contestant"], row["step_ms"]) for row in rows] == [("dgc", [10.0]), ("ddp", [100.0])]


def test_a_cell_that_the_file_holds_is_not_measured_again(tmp_path, monkeypatch):
    file = tmp_path / "results.jsonl"
    table.append(file, [record("ddp", [10.0], [10.0]), record("dense", [10.0], [10.0])])
    ran = []

    class NoHosts:
        words = "1 Gb/s"

        def hosts(self, count):
            self.count = count
            return contextlib.nullcontext(self)

        def report_text(self):
            return ""

    def launch(hosts, cell, names, options, plugins):
        ran.append(names)
        return {name: {"step_ms": [4.0]} for name in names}

    monkeypatch.setattr(race, "link_of", lambda words: NoHosts())
    monkeypatch.setattr(race, "launch", launch)
    options = race.parse(["--schemes", "ddp,dense,dgc,qsgd", "--bandwidth", "1gbit", "--resume", str(file), "--together", "1"])
    first = race.measure(options, tmp_path, "a command")
    assert ran == [["ddp", "dgc"], ["ddp", "qsgd"]]
    assert sorted(one["contestant"] for one in first) == ["ddp", "dense", "dgc", "qsgd"]
    assert [one["contestant"] for one in table.read(file)] == ["ddp", "dense", "dgc", "qsgd"]
    assert table.read(file)[2]["reference_ms"] == [4.0] and table.read(file)[0]["step_ms"] == [10.0]
    race.measure(options, tmp_path, "a command")
    assert len(ran) == 2 and len(table.read(file)) == 4


def test_those_that_others_disturb_run_with_the_reference_alone():
    itself = contestants.HOROVOD_ITSELF
    assert race.runs_of(["ddp", "dense", itself, "qsgd", "dgc"], 6) == [["ddp", "qsgd", "dgc"], ["ddp", itself], ["ddp", "dense"]]
    assert race.runs_of([itself], 6) == [["ddp", itself]]


def test_results_are_every_published_system_over_both_links_and_by_both_numbers_of_ranks(monkeypatch, tmp_path):
    monkeypatch.setattr(contestants, "HOROVOD", tmp_path)
    cells = race.parse(["--results"]).cells
    whole = {name for cell in cells if (cell.model, cell.link, cell.ranks, cell.backward_ms) == ("resnet50", "100mbit", 4, 0) for name in cell.contestants}
    assert {*contestants.names()} - whole == {"s-sgd", "fusion", "diloco", "streaming-diloco", "one-step-late", "dgc-hierarchical", "dgc-geometric-warmup", "dgc-steady"}
    assert {(cell.model, cell.link, cell.ranks) for cell in cells} == {(model, link, ranks) for model in ("resnet50", "bert-base") for link in ("1gbit", "100mbit") for ranks in (2, 4)}
    few = race.parse(["--results", "--model", "bert-base", "--bandwidth", "1gbit", "--ranks", "4"]).cells
    assert [(cell.model, cell.link, cell.ranks, cell.file.name) for cell in few] == [("bert-base", "1gbit", 4, "bert-base.jsonl")]


@pytest.mark.parametrize("words", [["--resume", "a.jsonl"], ["--model", "lstm"]])
def test_results_that_would_go_nowhere_are_refused(words, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(contestants, "HOROVOD", tmp_path)
    with pytest.raises(SystemExit):
        race.parse(["--results", *words])
    assert "docs/results" in capsys.readouterr().err


def test_horovod_that_was_not_built_is_refused_with_the_command_that_builds_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(contestants, "HOROVOD", tmp_path / "nothing")
    with pytest.raises(SystemExit):
        race.parse(["--schemes", contestants.HOROVOD_ITSELF])
    assert "tools/benches/step/build_horovod builds horovod-0.28.1" in capsys.readouterr().err
    assert race.parse(["--results", "--model", "resnet50", "--ranks", "4"]).cells  # its cells are measured
    (tmp_path / "spoilt.jsonl").write_text("{}\n{}\n")
    with pytest.raises(SystemExit):
        race.parse(["--schemes", contestants.HOROVOD_ITSELF, "--resume", str(tmp_path / "spoilt.jsonl")])
    assert "spoilt.jsonl:1 is '{}'" in capsys.readouterr().err


def test_a_line_that_was_cut_off_is_measured_again_and_one_in_the_middle_is_named(tmp_path):
    file = tmp_path / "results.jsonl"
    whole = json.dumps(record("dense", [10.0], [10.0]))
    file.write_text(f'{whole}\n{{"model": "resn')
    assert len(table.read(file)) == 1
    table.append(file, [record("dgc", [10.0], [10.0])])
    assert [one["contestant"] for one in table.read(file)] == ["dense", "dgc"]
    file.write_text(f"{{}}\n{whole}\n")
    with pytest.raises(ValueError, match=r"results\.jsonl:1 is '\{\}', expected a line that tools/bench step wrote"):
        table.read(file)


def test_a_page_keeps_its_words_around_the_tables(tmp_path):
    page = tmp_path / "results.md"
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.write_between(page, (table.BEGIN, table.END), table.markdown([record("dense", [10.0], [10.0])]))
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "### resnet50, 4 ranks at 1 Gb/s, no compute" in text and "`tools/bench step`, 2026-11-23, 1 rounds" in text
    table.write_between(page, (table.BEGIN, table.END), table.markdown([record("dense", [10.0], [10.0])]))
    assert page.read_text() == text
    page.write_text("no markers\n")
    with pytest.raises(ValueError, match="in this order and once each"):
        table.write_between(page, (table.BEGIN, table.END), "")


@pytest.mark.pages
def test_the_committed_page_says_what_the_committed_results_say():
    records = [one for path in sorted(race.RESULTS.glob("*.jsonl")) for one in table.read(path)]
    assert records and table.markdown(records) in race.PAGE.read_text()
    assert simulated.markdown(json.loads(race.SIMULATED.read_text())) in race.PAGE.read_text()
    assert headlines.markdown(records) in race.README.read_text()
    assert claims.markdown(records) in race.PAGE.read_text()


def test_a_paper_claims_something_of_a_contestant_and_beside_it_stands_what_was_measured():
    assert set(claims.CLAIMS) <= set(contestants.names())
    text = claims.markdown(two_links())
    assert "| DGC (`dgc`) | 270 to 600 times fewer bytes; nothing of time | up to 64 GPUs | 10 at 1 Gb/s, 100 at 100 Mb/s |" in text
    assert text.count(" | - |") == len(claims.CLAIMS) - 1


def two_links() -> list[dict]:
    return [record(name, step, [100.0, 100.0]) | {"bandwidth": link}
            for link, name, step in (("1gbit", "ddp", [100.0, 100.0]), ("1gbit", "dgc", [10.0, 10.0]), ("100mbit", "ddp", [100.0, 100.0]),
                                     ("100mbit", "dgc", [1.0, 1.0]), ("100mbit", "qsgd", [50.0, 50.0]))]  # fmt: skip


def test_headlines_hold_who_ran_over_every_link_beside_how_many_times_as_fast():
    text = headlines.markdown([*two_links(), record("dgc", [1.0], [1.0]) | {"model": "lstm"}])
    assert "| DGC 0.1 %, without its warm-up | " in text and "10 ms, 10" in text and "1 ms, 100" in text
    assert "| DDP over gloo | 100 ms, 1 | 100 ms, 1 |" in text and "qsgd" not in text


def test_the_picture_has_a_panel_for_each_link_and_a_bar_for_each_contestant(tmp_path, monkeypatch):
    from matplotlib import pyplot

    seen = []
    monkeypatch.setattr(pyplot, "close", seen.append)
    headlines.draw(two_links(), tmp_path / "step.png")
    assert (tmp_path / "step.png").read_bytes().startswith(b"\x89PNG")
    assert [len(axes.patches) for axes in seen[0].axes] == [2, 2]  # qsgd has no words there


def test_what_is_predicted_stands_beside_dense_and_the_best_is_bold_only_where_it_gains():
    steps = {name: 400.0 for name in simulated.SCHEMES}
    fast = {"model": "vgg16", "hosts": 4, "link": "10gbit", "step_ms": steps | {"dense": 100.0, "power-sgd": 50.0, "ok-topk": None}}
    slow = {"model": "lstm", "hosts": 64, "link": "10gbit", "step_ms": steps | {"dense": 100.0}}
    text = simulated.markdown({"date": "2026-11-23", "cells": [fast, slow]})
    assert "### Simulated: 10 Gb/s" in text
    assert "| vgg16 | 4 | 100 | 0.25 | 0.25 | **2.00** | 0.25 | 0.25 | - |" in text
    assert "| lstm | 64 | 100 | 0.25 | 0.25 | 0.25 | 0.25 | 0.25 | 0.25 |" in text
    assert "`penstock plan --model vgg16 --hosts 4 --link 10gbit --scheme conf/topk-residual.toml" in text


def test_a_predicted_cell_is_the_command_that_the_page_names():
    asked = []

    def run(command):
        asked.append(command)
        return json.dumps({"schemes": [{"name": "dense", "step_ms": 7.0}, {"name": "dgc", "step_ms": None}]})

    found = simulated.cell("lstm", 64, "10gbit", pathlib.Path("/bin/penstock"), run)
    assert found == {"model": "lstm", "hosts": 64, "link": "10gbit", "step_ms": {"dense": 7.0, "dgc": None}}
    assert [pathlib.Path(word).name for word in asked[0]] == [pathlib.Path(word).name for word in simulated.words("lstm", 64, "10gbit")]


def test_backward_has_the_gradients_when_their_share_of_the_work_is_done(tmp_path):
    (tmp_path / "tiny.csv").write_text(TINY)
    first, bias, second = models.read("tiny", tmp_path)
    assert (second.share, bias.share, first.share) == (0.25, 0.25, 1.0)
    assert (first.shape, first.elements, bias.shape) == ((64, 32), 2048, (64,))


def test_a_profile_of_a_wrong_line_is_named(tmp_path):
    (tmp_path / "tiny.csv").write_text("name,shape,work\nfirst,64xx,1\n")
    with pytest.raises(ValueError, match="tiny.csv:2 is 'first,64xx,1', expected name,shape,work"):
        models.read("tiny", tmp_path)


@pytest.mark.parametrize("name", [name for name in contestants.names() if contestants.is_ours(name)])
def test_a_scheme_holds_from_the_first_step(name):
    scheme = tomllib.loads(contestants.scheme_of(name))
    assert "switch" not in scheme and scheme["scheme"]["compressor"]
    assert scheme["scheme"].get("transport") != "auto"


def test_what_comes_behind_a_switch_stays():
    text = '[scheme]\ncompressor = "dgc"\n[[switch]]\nat_step = 0\n[compressor.dgc]\ndensity = 0.001\n'
    assert tomllib.loads(contestants.without_switches(text)) == {"scheme": {"compressor": "dgc"}, "compressor": {"dgc": {"density": 0.001}}}


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--model", "alexnet"], ("'alexnet'", "resnet50", "bert-base")), (["--schemes", "ddp,topk"], ("'topk'", "topk-residual", "grace-style")),
     (["--bandwidth", "fast"], ("'fast'", "100mbit")), (["--ranks", "1"], ("--ranks from 2",)), (["--rounds", "0"], ("--rounds",))],
)  # fmt: skip
def test_an_argument_that_means_nothing_is_named_with_what_there_is(words, said):
    ran = bench(*words)
    assert ran.returncode == 2
    for one in said:
        assert one in ran.stderr


@needs_hosts()
def test_a_race_of_a_tiny_model_counts_the_bytes_of_the_wire(tmp_path):
    (tmp_path / "tiny.csv").write_text(TINY)
    file = tmp_path / "results.jsonl"
    ran = bench("--profiles", tmp_path, "--model", "tiny", "--bandwidth", "1gbit", "--ranks", "2", "--rounds", "1", "--schemes", "ddp,dense,power-sgd,grace-style",
                "--backward-ms", "40", "--resume", file, "--json", timeout_s=240.0)  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = {one["contestant"]: one for one in json.loads(ran.stdout)}
    assert set(found) == {"ddp", "dense", "power-sgd", "grace-style"}
    elements = 64 * 32 + 64 + 300 * 64
    for name in ("ddp", "dense"):  # an all-reduce of two ranks sends each element once, and headers
        (sent,) = found[name]["wire_bytes"]
        assert 4 * elements <= sent <= 1.3 * 4 * elements + 10_000
    assert found["power-sgd"]["wire_bytes"][0] < found["dense"]["wire_bytes"][0] / 2
    assert all(one["step_ms"][0] >= 40 for one in found.values())  # nobody is through before backward is
    assert set(found["dense"]) - set(found["ddp"]) == {"encode_ms", "exchange_ms", "decode_ms", "wait_ms"}
    assert table.read(file) == list(found.values())


@needs_far_hosts()
def test_a_race_over_a_distance_waits_for_it_and_the_router_tells_how_it_fared(tmp_path):
    (tmp_path / "tiny.csv").write_text(TINY)
    ran = bench("--profiles", tmp_path, "--model", "tiny", "--link", "wan", "--ranks", "2", "--rounds", "3", "--schemes", "ddp,dense,topk-residual", "--json", timeout_s=240.0)
    assert ran.returncode == 0, ran.stderr
    found = {one["contestant"]: one for one in json.loads(ran.stdout)}
    # A sum of two ranks is one way there and one back; what two ranks gather is there after one.
    for name, least_ms in (("ddp", 48.0), ("dense", 48.0), ("topk-residual", 24.0)):
        assert least_ms < min(found[name]["step_ms"]), found[name]
    assert "the router carried" in ran.stderr and found["dense"]["bandwidth"] == "wan"
