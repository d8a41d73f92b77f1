"""`penstock plan`: predictions follow from their premises, and its output and files agree."""

import importlib.util
import json
import math
import pathlib
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree

import pytest
from command_test import ROOT, penstock

PROFILES = ROOT / "tools/penstock/plan/profiles"
# As published, or as `sum(p.numel() for p in model.parameters())` of torchvision's and Hugging Face's models.
PARAMETERS = {
    "resnet50": 25_557_032, "resnet152": 60_192_808, "vgg16": 138_357_544, "bert-base": 109_482_240, "bert-large": 335_141_888,
    "gpt2": 124_439_808, "vit-large": 304_326_632, "lstm": 66_034_000,
}  # fmt: skip
# Thousand million multiplications of one sample, as torchvision states them for its models.
COSTS = "encode_us,encode_ns_per_element,decode_us,decode_ns_per_element,further_payload_ns_per_element"
MULTIPLICATIONS = {"resnet50": 4.089, "resnet152": 11.514, "vgg16": 15.47, "vit-large": 61.555}


def plan(*arguments):
    ran = penstock("plan", *arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def schemes(*arguments):
    return {scheme["name"]: scheme for scheme in plan(*arguments)["schemes"]}


def scheme_flags(*names):
    return [word for name in names for word in ("--scheme", ROOT / "conf" / f"{name}.toml")]


def refused(*arguments):
    ran = penstock("plan", *arguments)
    assert ran.returncode == 1 and ran.stdout == ""
    return ran.stderr


@pytest.fixture
def free(tmp_path):
    """A table in which no method takes any time."""
    table = tmp_path / "free.csv"
    methods = [f"{compressor}+{memory}" for compressor in ("none", "topk", "powersgd") for memory in ("none", "residual")]
    table.write_text(f"method,{COSTS}\n"
                     + "".join(f"{method},0,0,0,0,0\n" for method in methods))
    return table


@pytest.fixture
def profile(tmp_path):
    """Writes a profile of vectors that are ready when backward is over, if it takes any time."""
    def write(sizes, forward_ms=0.0, backward_ms=0.0):
        path = tmp_path / "mine.csv"
        rows = "".join(f"layer{i}.weight,{size},{1 if i == 0 else 0}\n" for i, size in enumerate(sizes))
        path.write_text(f"# forward_ms = {forward_ms}\n# backward_ms = {backward_ms}\nname,shape,work\n{rows}")
        return path
    return write


# ---- Models ----


def generated():
    spec = importlib.util.spec_from_file_location("generate", PROFILES / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: make() for name, make in module.MODELS.items()}


def test_every_profile_is_what_its_generator_writes():
    models = generated()
    assert set(models) == {file.stem for file in PROFILES.glob("*.csv")} - {"costs"} == set(PARAMETERS)
    for name, model in models.items():
        assert (PROFILES / f"{name}.csv").read_text() == model.text(), f"{name}: run generate.py"


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_model_has_as_many_parameters_as_published(name):
    assert plan("--model", name, *scheme_flags("wfbp"))["model"]["parameters"] == PARAMETERS[name]


def test_the_work_of_a_model_is_what_its_authors_count():
    models = generated()
    for name, expected in MULTIPLICATIONS.items():
        assert models[name].flops() / 2e9 == pytest.approx(expected, rel=0.02)  # they leave out norms


# ---- Times that can be told otherwise ----


def test_dense_between_two_ranks_takes_its_bytes_over_the_link(free):
    found = plan("--hosts", 2, "--link", "1gbit", "--latency", 0, "--headers", 0, "--costs", free, *scheme_flags("s-sgd"))
    wire_ms = 4 * PARAMETERS["resnet50"] * 8 / 1e9 * 1000  # each rank sends half of it twice
    s_sgd = {scheme["name"]: scheme for scheme in found["schemes"]}["s-sgd"]
    assert s_sgd["exposed_ms"] == pytest.approx(wire_ms, rel=1e-6)  # nothing overlaps
    assert s_sgd["step_ms"] == pytest.approx(found["model"]["forward_ms"] + found["model"]["backward_ms"] + wire_ms, rel=1e-6)
    assert s_sgd["sent_bytes"] == pytest.approx(4 * PARAMETERS["resnet50"], rel=1e-6)


def test_headers_take_their_share_of_the_link_between_hosts_alone(profile, free):
    words = ("--model", profile([1_000_000]), "--latency", 0, "--local-latency", 0, "--costs", free, *scheme_flags("wfbp"))
    without, with_them = (schemes("--headers", headers, *words)["wfbp"]["step_ms"] for headers in (0, 0.25))
    assert with_them == pytest.approx(1.25 * without)
    assert schemes(*words)["wfbp"]["step_ms"] == pytest.approx(1.046 * without)
    inside = [schemes("--headers", headers, "--hosts", 1, "--ranks-per-host", 4, *words)["wfbp"]["step_ms"] for headers in (0, 0.25)]
    assert inside[0] == inside[1] > 0


def test_wfbp_without_computation_is_the_sum_of_its_messages(profile, free):
    sizes = [100_000, 5_000, 1_000_000, 30_000]
    hosts, latency_us, bits = 8, 25, 1e9
    found = schemes("--model", profile(sizes), "--hosts", hosts, "--latency", latency_us, "--headers", 0, "--costs", free, *scheme_flags("wfbp"))
    messages_us = [2 * (hosts - 1) * latency_us + 2 * (hosts - 1) / hosts * 4 * size * 8 / bits * 1e6 for size in sizes]
    assert found["wfbp"]["step_ms"] == pytest.approx(sum(messages_us) / 1000, rel=1e-6)
    assert found["wfbp"]["buckets"] == len(sizes)


def test_a_rank_alone_takes_its_forward_and_backward_whatever_has_no_gradient(tmp_path, free):
    model = tmp_path / "mine.csv"
    model.write_text("# forward_ms = 30\n# backward_ms = 70\nname,shape,work\nfrozen,,5\nweight,1000x10,3\nhead,,2\n")
    one = schemes("--model", model, "--hosts", 1, "--straggler", 2, "--costs", free, *scheme_flags("wfbp"))["wfbp"]
    assert one["step_ms"] == pytest.approx(200) and one["exposed_ms"] == 0 and one["sent_bytes"] == 0


def test_ranks_of_a_host_share_its_link(profile, free):
    model = profile([10_000_000])
    rates = ("--latency", 0, "--local-latency", 0, "--costs", free)
    alone = schemes("--model", model, "--hosts", 2, *rates, *scheme_flags("wfbp"))["wfbp"]
    shared = schemes("--model", model, "--hosts", 2, "--ranks-per-host", 4, *rates, *scheme_flags("wfbp"))["wfbp"]
    # Of 2 (P - 1) / P of the bytes 4 / 7 go to the other host, for each of four ranks.
    assert shared["step_ms"] / alone["step_ms"] == pytest.approx(2 * 7 / 8 * 4 / 7 * 4 / 1, rel=1e-6)


def test_a_gathered_payload_grows_with_the_ranks_and_a_summed_one_does_not(free):
    few, many = (schemes("--hosts", hosts, "--costs", free, *scheme_flags("topk-residual", "power-sgd")) for hosts in (2, 32))
    assert 25 < many["topk-residual"]["sent_bytes"] / few["topk-residual"]["sent_bytes"] < 32
    assert many["power-sgd"]["sent_bytes"] / few["power-sgd"]["sent_bytes"] < 2.1


def test_a_hierarchical_route_spares_the_link_between_hosts():
    found = schemes("--hosts", 4, "--ranks-per-host", 8, "--link", "1gbit", *scheme_flags("dgc", "dgc-hierarchical"))
    assert found["dgc-hierarchical"]["exchange_ms"] < found["dgc"]["exchange_ms"]


def test_a_route_that_is_split_waits_for_less(free):
    found = schemes("--hosts", 8, "--link", "10gbit", "--costs", free, *scheme_flags("dear"))
    assert found["dear"]["exposed_ms"] < found["dense"]["exposed_ms"]


def test_what_a_scheduler_forecasts_of_its_plan_is_what_is_predicted():
    found = schemes("--link", "10gbit", *scheme_flags("mg-wfbp", "omgs", "fgbuff", "syncea"))
    for name in ("mg-wfbp", "omgs", "fgbuff", "syncea"):
        said = re.search(r"forecast: (\S+) us exposed after backward", " ".join(found[name]["explanation"]))
        assert float(said[1]) / 1000 == pytest.approx(found[name]["exposed_ms"], rel=1e-4)


# ---- Facts that every prediction must have ----


def test_a_faster_link_makes_no_scheme_slower():
    """Where buckets do not depend on the link. A scheduler that plans by it may merge too much, by a wrong view of decoding.

    The calls of `demo` take so long that a message which arrives earlier can let a decode delay an encode, by a hundredth at most.
    """
    fixed = {"fusion", "wfbp", "syncea", "dear"}
    scheduler = {file.stem: tomllib.loads(file.read_text())["scheme"].get("scheduler", "fusion") for file in (ROOT / "conf").glob("*.toml")}
    names = [name for name in scheduler if scheduler[name] in fixed]
    assert len(names) >= 35
    slower = {}
    for link in ("10mbit", "100mbit", "1gbit", "10gbit", "100gbit"):
        found = schemes("--link", link, *scheme_flags(*names))
        steps = {name: scheme["step_ms"] for name, scheme in found.items() if not scheme["depends_on_values"]}
        for name, step in steps.items():
            most = 1.01 if name == "demo" else 1.000001
            assert step <= slower.get(name, math.inf) * most, f"{name} at {link}"
        slower = steps


def test_a_straggler_and_jitter_make_dense_slower_and_a_seed_repeats_it():
    steady = schemes(*scheme_flags("fusion"))["fusion"]["step_ms"]
    late = schemes("--straggler", 1.5, *scheme_flags("fusion"))["fusion"]["step_ms"]
    model = plan(*scheme_flags("fusion"))["model"]
    assert steady < late <= 1.5 * steady and late >= 1.5 * (model["forward_ms"] + model["backward_ms"])
    drawn = [schemes("--jitter", 0.3, "--seed", seed, *scheme_flags("fusion"))["fusion"]["step_ms"] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2] and drawn[0] > steady


def test_what_takes_longer_to_compute_hides_more(free):
    short, long = (schemes("--backward-ms", ms, "--costs", free, *scheme_flags("wfbp"))["wfbp"] for ms in (10, 1000))
    assert long["exposed_ms"] < short["exposed_ms"] and long["exchange_ms"] == short["exchange_ms"]


# ---- Sweeps ----


def test_a_crossover_is_where_single_runs_change_their_fastest():
    some = scheme_flags("fusion", "topk-residual", "power-sgd", "dgc")
    found = plan("--sweep", "bandwidth=10mbit..100gbit", *some)
    sweep, = found["sweeps"]
    assert sweep["points"][0]["at"] == 1e7 and sweep["points"][-1]["at"] == 1e11 and len(sweep["points"]) == 13
    assert sweep["crossovers"] and sweep["points"][-1]["best"] in ("dense", "fusion")
    for crossover in sweep["crossovers"]:
        below, above = (plan("--link", f"{crossover['at'] * factor / 1e3:.6f}kbit", *some)["best"]["scheme"] for factor in (0.998, 1.0001))
        assert (below, above) == (crossover["from"], crossover["to"])
    at_a_gigabit = next(point for point in sweep["points"] if math.isclose(point["at"], 1e9))
    single = schemes("--link", "1gbit", *some)
    assert {name: scheme["step_ms"] for name, scheme in single.items()} == pytest.approx(at_a_gigabit["step_ms"])


def test_over_ranks_a_gather_loses_in_the_end():
    some = scheme_flags("topk-residual")
    sweep, = plan("--sweep", "ranks=2..512", *some)["sweeps"]
    assert [point["at"] for point in sweep["points"]] == [2 << i for i in range(9)]
    assert sweep["points"][0]["best"] == "topk-residual" and sweep["points"][-1]["best"] == "dense"
    crossover, = sweep["crossovers"]
    hosts = int(crossover["at"])
    assert plan("--hosts", hosts - 1, *some)["best"]["compress"] and not plan("--hosts", hosts, *some)["best"]["compress"]


# ---- Output and files ----


def test_the_text_names_premises_every_scheme_and_a_verdict():
    ran = penstock("plan", "--model", "vgg16", "--link", "100mbit", *scheme_flags("fusion", "dgc", "adacomp"))
    assert ran.returncode == 0, ran.stderr
    assert "138 357 544 parameters" in ran.stdout and "4 hosts with 1 rank each, 100 Mbit/s" in ran.stdout
    lines = [line.split()[0] for line in ran.stdout.splitlines() if line]
    assert {"model", "cluster", "costs", "SCHEME", "dense", "fusion", "dgc", "adacomp"} <= set(lines)
    assert "depends on values" in ran.stdout and "Best is dgc" in ran.stdout
    assert re.search(r"Best is dgc: \S+ times as fast as dense per step, steps to a loss not counted\.", ran.stdout)
    fast = penstock("plan", "--model", "resnet50", "--link", "100gbit", *scheme_flags("dgc"))
    assert "Do not compress: best is dense" in fast.stdout and "does not save 5 % of its step (per step, steps to a loss not counted)." in fast.stdout
    assert "Best is dgc" in penstock("plan", "--link", "40gbit", "--worth", 0, *scheme_flags("dgc")).stdout


def test_json_has_every_field():
    found = plan("--sweep", "ranks=2..8", *scheme_flags("topk-residual"))
    assert list(found) == ["model", "cluster", "costs", "schemes", "best", "sweeps"]
    assert set(found["model"]) == {"name", "about", "gradients", "parameters", "forward_ms", "backward_ms"}
    assert found["cluster"]["hosts"] == 4 and found["cluster"]["link_bits_per_s"] == 1e9
    for scheme in found["schemes"]:
        assert set(scheme) == {"name", "compresses", "depends_on_values", "step_ms", "against_dense", "exposed_ms", "encode_ms",
                               "exchange_ms", "decode_ms", "sent_bytes", "buckets", "without_cost", "explanation"}
        assert scheme["without_cost"] == [] and scheme["explanation"]
    assert [(scheme["name"], scheme["compresses"]) for scheme in found["schemes"]] == [("dense", False), ("topk-residual", True)]


def test_the_page_is_whole_and_draws_timelines_and_sweeps(tmp_path):
    page = tmp_path / "page.html"
    some = scheme_flags("fusion", "topk-residual", "dear")
    assert penstock("plan", "--html", page, "--sweep", "bandwidth=10mbit..10gbit", *some).returncode == 0
    text = page.read_text()
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "") and "<script" not in text
    root = xml.etree.ElementTree.fromstring(text.replace("<!DOCTYPE html>", ""))
    drawings = list(root.iter("svg"))
    assert len(drawings) == 1 + 4  # the sweep, and a timeline for each scheme
    for drawing in drawings[1:]:
        lanes = {box.get("class") for box in drawing.iter("rect")}
        assert {"lane0", "lane2"} <= lanes
        assert all(float(box.get("x")) + float(box.get("width")) <= 1040 for box in drawing.iter("rect"))
    assert len(list(drawings[0].iter("polyline"))) >= 5
    assert text.count("Over bandwidth") == 1  # in the heading
    verdicts = re.findall(r'<p class="verdict">(.*?)</p>', text)
    assert len(verdicts) == 2 and all("per step, steps to a loss not counted" in verdict for verdict in verdicts)


def test_names_in_a_profile_cannot_become_part_of_the_page(tmp_path):
    profile, page = tmp_path / "mine.csv", tmp_path / "page.html"
    profile.write_text("# about = <script>alert(1)</script> & \"more\"\n# forward_ms = 1\n# backward_ms = 1\nname,shape,work\n<b>&,70000,1\n")
    assert penstock("plan", "--model", profile, "--html", page, *scheme_flags("wfbp")).returncode == 0
    root = xml.etree.ElementTree.fromstring(page.read_text().replace("<!DOCTYPE html>", ""))
    assert '<script>alert(1)</script> & "more"' in "".join(root.itertext()) and not list(root.iter("script"))
    assert any("<b>&" in (title.text or "") for title in root.iter("title"))


def test_the_trace_has_the_times_of_the_table(tmp_path):
    trace = tmp_path / "trace.json"
    found = plan("--trace", trace, *scheme_flags("topk-residual"))
    events = json.loads(trace.read_text())["traceEvents"]
    names = {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}
    for scheme in found["schemes"]:
        mine = [event for event in events if event["ph"] == "X" and event["pid"] == names[scheme["name"]]]
        for lane in ("encode", "exchange", "decode"):
            total = sum(event["dur"] for event in mine if event["cat"] == lane)
            assert total / 1000 == pytest.approx(scheme[f"{lane}_ms"], rel=1e-6)
        end = max(event["ts"] + event["dur"] for event in mine)
        assert end / 1000 == pytest.approx(scheme["step_ms"], rel=1e-6)


# ---- Costs ----


def test_measured_costs_are_written_and_read_again(tmp_path):
    table = tmp_path / "costs.csv"
    some = scheme_flags("topk-residual", "acp-sgd")
    measured = plan("--measure", "--save-costs", table, *some)
    assert "this machine" in measured["costs"]
    assert [line.split(",")[0] for line in table.read_text().splitlines()[3:]] == [
        "acpsgd(rank = 4)+residual", "none+none", 'topk(density = 0.01; scope = "item")+residual']
    again = schemes("--costs", table, *some)
    for scheme in measured["schemes"]:
        assert again[scheme["name"]]["step_ms"] == pytest.approx(scheme["step_ms"], rel=0.01)  # rounded in the table
        assert scheme["name"] == "dense" or scheme["encode_ms"] > 0


def test_a_method_that_no_table_has_is_named(tmp_path):
    table = tmp_path / "costs.csv"
    table.write_text(f"method,{COSTS}\nnone+none,0,0,0,0,0\n")
    ran = penstock("plan", "--costs", table, *scheme_flags("topk-residual"))
    assert ran.returncode == 0 and "topk(density = 0.01; scope = \"item\")+residual counted as costing nothing" in ran.stdout


def test_signs_of_top_k_have_costs_of_their_own():
    """They take a sweep over the selected values more than float16."""
    found = schemes(*scheme_flags("topk-residual", "top-k-signs"))
    assert 1.05 < found["top-k-signs"]["encode_ms"] / found["topk-residual"]["encode_ms"] < 1.3


def test_the_table_that_comes_along_knows_every_method_of_conf():
    found = plan("--link", "1gbit")
    assert {scheme["name"] for scheme in found["schemes"]} == {file.stem for file in (ROOT / "conf").glob("*.toml")} | {"dense"}
    assert not [scheme["name"] for scheme in found["schemes"] if scheme["without_cost"]]


# ---- Errors ----


@pytest.mark.parametrize(("arguments", "words"), [
    (["--model", "resnet5"], ['no model or file "resnet5"', 'did you mean "resnet50"']),
    (["--scheme", "conf/none-such.toml"], ["conf/none-such.toml", "no such configuration file"]),
    (["--link", "fast"], ['"fast" is no speed', "2.5gbit"]),
    (["--link", "10"], ['"10" is no speed']),
    (["--link", "10gibit"], ['"10gibit" is no speed']),
    (["--link", "10GB/s"], ['"10GB/s" counts bytes', "expected 80gbit"]),
    (["--link", "1e308tbit"], ['"1e308tbit" is a speed out of range', "1 bit/s to 1000 Tbit/s"]),
    (["--local", "0gbit"], ['"0gbit" is a speed out of range']),
    (["--sweep", "latency=1..2"], ["latency=1..2", "bandwidth=10mbit..100gbit"]),
    (["--sweep", "ranks=2..1.5"], ["ranks=2..1.5", '"1.5" is no number of ranks']),
    (["--sweep", "bandwidth=1gbit..1mbit"], ["bandwidth=1gbit..1mbit", "FIRST < LAST"]),
    (["--costs", "none-such.csv"], ["none-such.csv", "a table of costs"]),
])  # fmt: skip
def test_an_argument_that_cannot_be_is_named_with_what_was_expected(arguments, words):
    said = refused(*arguments)
    assert all(word in said for word in words), said


@pytest.mark.parametrize(("text", "words"), [
    ("name,size\n", [":1:", "expected 3 cells: name,shape,work"]),
    ("name,shape,work\nweight,3,1\n", ["forward_ms = NUMBER"]),
    ("# forward_ms = 1\n# backward_ms = x\nname,shape,work\nweight,3,1\n", ['backward_ms is "x"']),
    ("# forward_ms = 1\n# backward_ms = 1\nname,shape,work\nweight,3x0,1\n", [":4:", 'shape of weight is "3x0"']),
    ("# forward_ms = 1\n# backward_ms = 1\nname,shape,work\nweight,3,much\n", [":4:", 'the work of weight is "much"']),
    ("# forward_ms = 1\n# backward_ms = 1\nname,shape,work\nweight,3,1\nweight,3,1\n", [":5:", "second row weight"]),
    ("# forward_ms = 1\n# backward_ms = 1\nname,shape,work\nhead,,1\n", ["no row has a shape"]),
])  # fmt: skip
def test_a_profile_that_cannot_be_read_is_named_with_its_line(tmp_path, text, words):
    file = tmp_path / "wrong.csv"
    file.write_text(text)
    said = refused("--model", file)
    assert "wrong.csv" in said and all(word in said for word in words), said


def test_two_schemes_of_one_name_are_refused(tmp_path):
    copy = tmp_path / "fusion.toml"
    copy.write_text(pathlib.Path(ROOT / "conf/fusion.toml").read_text())
    assert 'a scheme "fusion" is there already' in refused("--scheme", copy, *scheme_flags("fusion"))


def test_a_scheme_whose_messages_go_from_device_to_device_is_refused(tmp_path):
    file = tmp_path / "nccl.toml"
    file.write_text((ROOT / "conf/topk-residual.toml").read_text() + '\n[transport]\ndevice = "nccl"\n')
    said = refused("--scheme", file)
    assert all(word in said for word in [str(file), 'transport.device = "nccl"', "is not predicted; leave the key out"]), said


@pytest.mark.pages
def test_the_profile_that_the_page_writes_is_read(tmp_path):
    program = (ROOT / "docs/plan.md").read_text().split("```python\n")[1].split("```")[0]
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=120)
    found = plan("--model", tmp_path / "mine.csv", *scheme_flags("fusion"))
    assert found["model"]["name"] == "mine" and found["model"]["parameters"] == 64 * 256 + 256 + 256 * 8 + 8
    assert 0 < found["model"]["backward_ms"] < 1000


@pytest.mark.pages
def test_the_page_of_this_command_shows_what_it_prints():
    page = (ROOT / "docs/plan.md").read_text()
    command = page.split("```sh\npenstock ")[1].split("\n")[0].split()
    shown = page.split("```text\n")[1].split("```")[0]
    assert penstock(*command, cwd=ROOT).stdout == shown
