"""`penstock plan` and numbers: spellings that it takes, those from which nothing could be told, and how they are drawn."""

import xml.etree.ElementTree

import pytest
from command_test import penstock
from plan_test import COSTS, free, plan, profile, refused, scheme_flags, schemes  # noqa: F401


@pytest.mark.parametrize(("option", "given", "words"), [
    ("--hosts", "eight", ['"eight" is no whole number', "1 to 65536"]),
    ("--hosts", "2.5", ['"2.5" is no whole number']),
    ("--hosts", "0", ["0 is out of range", "1 to 65536"]),
    ("--hosts", "99999999999999999999", ["is out of range"]),
    ("--jitter", "nan", ['"nan" is no number', "0 to 10"]),
    ("--straggler", "inf", ["inf is out of range", "1 to 1000"]),
    ("--forward-ms", "1e308", ["1e308 is out of range", "0 to 1000000000"]),
    ("--worth", "much", ['"much" is no number', "0 to 1"]),
])  # fmt: skip
def test_a_number_that_is_none_is_told_apart_from_one_that_is_out_of_range(option, given, words):
    ran = penstock("plan", option, given)
    assert ran.returncode != 0 and ran.stdout == "" and option in ran.stderr
    assert all(word in ran.stderr for word in words), ran.stderr


@pytest.mark.parametrize("link", [
    "2.5gbit", "2.5Gbit", "2.5 Gbit/s", "2.5Gbps", "2.5gbps", "2.5gb", "2.5Gb/s", "2.5G", "2500mbit", "2500 Mbps", "2.5e6 kbits/s",
    "2500000000bit/s"])  # fmt: skip
def test_the_usual_spellings_of_a_speed_are_taken(link):
    found = plan("--model", "lstm", "--link", link, *scheme_flags("wfbp"))
    assert found["cluster"]["link_bits_per_s"] == 2.5e9
    shown = penstock("plan", "--model", "lstm", "--link", link, *scheme_flags("wfbp")).stdout
    assert "2.5 Gbit/s" in shown


@pytest.mark.parametrize(("head", "work", "words"), [
    ("# forward_ms = 1e308\n# backward_ms = 1\n", "1", ["forward_ms is \"1e308\"", "0 to 1000000000"]),
    ("# forward_ms = 1\n# backward_ms = 1e12\n", "1", ["backward_ms is \"1e12\""]),
    ("# forward_ms = 1\n# backward_ms = 1\n", "1e308", ["the work of weight is \"1e308\""]),
    ("# forward_ms = inf\n# backward_ms = 1\n", "1", ["forward_ms is \"inf\""]),
])  # fmt: skip
def test_numbers_from_which_nothing_could_be_told_are_refused(tmp_path, head, work, words):
    file = tmp_path / "wrong.csv"
    file.write_text(f"{head}name,shape,work\nweight,3000,{work}\n")
    said = refused("--model", file)
    assert all(word in said for word in words), said


def test_costs_from_which_nothing_could_be_told_are_refused(tmp_path):
    table = tmp_path / "costs.csv"
    table.write_text(f"method,{COSTS}\nnone+none,0,1e300,0,0,0\n")
    assert 'encode_ns_per_element of none+none is "1e300"' in refused("--costs", table, *scheme_flags("wfbp"))


def test_a_factor_that_no_time_can_have_is_refused(tmp_path):
    file = tmp_path / "tiny.csv"
    file.write_text("# forward_ms = 1e-320\n# backward_ms = 1\nname,shape,work\nweight,3000,1\n")
    assert "cannot be computed" in refused("--model", file, "--forward-ms", 1e9, *scheme_flags("wfbp"))


def test_a_step_that_takes_no_time_is_as_fast_as_another(profile, free):
    words = ("--model", profile([1000]), "--hosts", 1, "--costs", free, *scheme_flags("wfbp"))
    assert "nan" not in penstock("plan", *words).stdout
    assert schemes(*words)["wfbp"]["against_dense"] == 1


def test_timelines_have_one_scale_and_no_lane_is_fuller_than_it_was_told(tmp_path):
    """Of 161 buckets that encode for 0.001 ms each a box of half a pixel would fill the lane."""
    page = tmp_path / "page.html"
    some = scheme_flags("wfbp", "topk-residual")
    found = {scheme["name"]: scheme for scheme in plan("--link", "1gbit", "--html", page, *some)["schemes"]}
    assert found["wfbp"]["buckets"] > 100 and 0 < found["wfbp"]["encode_ms"] < 1
    root = xml.etree.ElementTree.fromstring(page.read_text().replace("<!DOCTYPE html>", ""))
    headings = [heading.text for heading in root.iter("h3")]
    assert len(headings) == 3
    ticks = [[(text.get("x"), text.text) for text in drawing.iter("text") if text.get("class") == ""] for drawing in root.iter("svg")]
    assert ticks[0] and all(each == ticks[0] for each in ticks), "one scale"
    (x0, first), (x1, second) = ticks[0][0], ticks[0][1]
    px_per_ms = (float(x1) - float(x0)) / (float(second.split()[0]) - float(first.split()[0]))
    for heading, drawing in zip(headings, root.iter("svg"), strict=True):
        name = heading.split(":")[0]
        for lane, key in enumerate(("encode_ms", "exchange_ms", "decode_ms"), start=1):
            area = sum(float(box.get("width")) * float(box.get("height")) for box in drawing.iter("rect") if box.get("class") == f"lane{lane}")
            area_of_key = found[name][key] * px_per_ms * 18  # the height of a full box
            lines = 1040 - 92  # each column in which anything is has at least a line
            assert area <= area_of_key * 1.01 + lines, (name, key, area, area_of_key)
