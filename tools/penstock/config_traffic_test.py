"""`penstock config traffic`: what moves under a scheme, and up to how many ranks that is less than dense."""

import json
import re

import pytest
from command_test import ROOT, penstock


def stages(name, ranks=4):
    ran = penstock("config", "traffic", ROOT / "conf" / name, "--ranks", ranks, "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_dense_moves_two_thirds_twice_of_its_bytes_on_three_ranks():
    (stage,) = stages("s-sgd.toml", 3)
    gradient_bytes = 16 * 4 * (1024 * 1024 + 1024 + 256 * 256 * 9 + 256)
    assert abs(stage["moved_bytes"] / (gradient_bytes * 4 / 3) - 1) < 1e-3
    assert stage["moved_bytes"] == stage["dense_moved_bytes"]


def test_a_gather_grows_with_the_ranks_and_a_sum_does_not():
    (few,), (many,) = stages("topk-residual.toml", 2), stages("topk-residual.toml", 32)
    assert 25 < many["moved_bytes"] / few["moved_bytes"] < 32  # 31 times the gathered part
    (few,), (many,) = stages("power-sgd.toml", 2), stages("power-sgd.toml", 32)
    assert many["moved_bytes"] / few["moved_bytes"] < 2


@pytest.mark.pages
def test_the_page_of_schemes_says_up_to_how_many_ranks_each_of_them_wins():
    rows = [line.split(" | ") for line in (ROOT / "conf/README.md").read_text().splitlines() if line.startswith("| [")]
    said = {re.search(r"\[(.*)\]", row[0])[1]: row[6] for row in rows}
    assert said == {file.name: stages(file.name)[-1]["wins_up_to_ranks"] for file in (ROOT / "conf").glob("*.toml")}


def test_every_switch_has_its_own_line_and_a_wrong_file_its_error(tmp_path):
    warming_up = stages("dgc.toml")
    assert [stage["from_step"] for stage in warming_up] == [0, 1000, 2000, 3000, 4000]
    assert all(stage["moved_bytes"] > 0 for stage in warming_up)
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('[scheme]\ncompressor = "topq"\n')
    ran = penstock("config", "traffic", wrong)
    assert ran.returncode != 0 and "wrong.toml:2" in ran.stderr
