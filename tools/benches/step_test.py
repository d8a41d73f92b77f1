"""tools/bench step: what it measures, what it makes of figures, and what it refuses."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOM = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ROOM.parent))

from benches.step import contestants, page, race  # noqa: E402
from hosts import Hosts, HostsError  # noqa: E402

FIGURES = {
    "ddp": {"ms": [100.0, 400.0, 300.0], "sent_bytes": [8e6] * 3, "cpu_s": [0.5, 0.6, 0.7]},
    "dgc": {"ms": [50.0, 100.0, 300.0], "sent_bytes": [2e4, 3e4, 4e4], "cpu_s": [0.1, 0.2, 0.3]},
}
CELL = {"model": "resnet50", "link": "1gbit", "ranks": 4, "rounds": 3, "date": "2026-01-02", "figures": FIGURES}


def bench(*arguments, timeout=60):
    return subprocess.run([sys.executable, ROOM / "bench.py", "step", *arguments], capture_output=True, text=True, timeout=timeout, check=False)


def test_ratios_are_formed_within_a_round():
    assert race.table(FIGURES, "ddp")[1:] == [
        ("ddp", "300 (100 to 400)", "1.00 (1.00 to 1.00)", "8.00", "0.60"),
        ("dgc", "100 (50 to 300)", "2.00 (1.00 to 4.00)", "0.03", "0.20"),
    ]


def test_a_cell_that_is_kept_is_not_measured_again(tmp_path):
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps([CELL]))
    same = ["--links", "1gbit", "--rounds", "3", "--schemes", "ddp", "dgc"]
    options = race.parse(same)
    assert race.is_same(race.kept_cells(kept)[0], "resnet50", "1gbit", 4, options)
    assert not race.is_same(CELL, "resnet50", "100mbit", 4, options)
    for other in (["--rounds", "4"], ["--schemes", "ddp"]):
        assert not race.is_same(CELL, "resnet50", "1gbit", 4, race.parse([*same, *other]))


def test_a_file_that_is_not_its_own_is_refused_and_left_alone(tmp_path):
    kept = tmp_path / "kept.json"
    for text in ('[{"model": "resnet50"}]', "nonsense", "3"):
        kept.write_text(text)
        ran = bench("--keep", str(kept))
        assert ran.returncode == 1 and "was not written by tools/bench step" in ran.stderr, ran.stderr
        assert kept.read_text() == text


def test_the_page_has_a_table_of_each_cell_between_its_marks():
    text = page.between(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n", page.markdown([CELL], race.table))
    assert text.startswith(f"before\n{page.BEGIN}\n\n### resnet50, 4 hosts, 1 Gb/s") and text.endswith(f"{page.END}\nafter\n")
    assert "| dgc | 100 (50 to 300) | 2.00 (1.00 to 4.00) | 0.03 | 0.20 |" in text and "old" not in text
    with pytest.raises(SystemExit, match="does not have the lines"):
        page.between("no marks", "")


def test_docs_have_the_tables_of_what_was_measured():
    text = page.markdown(race.kept_cells(page.KEPT), race.table)
    assert text in page.PAGE.read_text(), "run tools/bench step --page"


def test_schemes_take_part_as_they_are_after_warm_up():
    assert "[[switch]]" in (contestants.CONF / "dgc.toml").read_text()
    assert "[[switch]]" not in contestants.scheme_of("dgc") and "density = 0.001" in contestants.scheme_of("dgc")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--schemes", "top-k"], "'top-k'"), (["--models", "resnet"], "resnet152"), (["--links", "fast"], "'fast'"),
        (["--ranks", "1"], "2 or more"), (["--rounds", "0"], "above 0"),
    ],
)  # fmt: skip
def test_an_argument_that_means_nothing_is_named(words, said):
    ran = bench(*words)
    assert ran.returncode == 2 and said in ran.stderr, ran.stderr


def test_a_short_race_tells_what_travels():
    try:
        with Hosts(2, "1gbit"):
            pass
    except HostsError as error:
        pytest.skip(str(error))
    ran = bench("--ranks", "2", "--links", "1gbit", "--rounds", "1", "--schemes", "ddp", "s-sgd", "topk-residual", "grace-style", "--json", timeout=300)
    assert ran.returncode == 0, ran.stderr
    (cell,) = json.loads(ran.stdout)
    sent = {name: one["sent_bytes"][0] for name, one in cell["figures"].items()}
    gradients = 4 * 25_557_032
    for name in ("ddp", "s-sgd"):  # two ranks: each sends half of all twice
        assert gradients < sent[name] < 1.02 * gradients, sent
    # One percent of values and indices, of 4 and 4 bytes, and of 4 and 8.
    assert 0.015 * gradients < sent["topk-residual"] < 0.025 * gradients < sent["grace-style"] < 0.035 * gradients, sent
