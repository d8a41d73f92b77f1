"""`penstock plan --program`: it prints the programs that a set runs, for the model and the ranks that it is given."""

import json
import re
import resource
import subprocess

import pytest
from command_test import COMMAND, ROOT, penstock

ROUTES = ("flat", "split", "hierarchical", "shard")
# The model and the ranks of core/set/methods/programs_test.cpp, which writes programs.txt from what sets report.
SHAPES = "# forward_ms = 1\n# backward_ms = 1\nname,shape,work\nlarge,96x100,1\nbias,24,1\nsecond,9x40,1\n"
RANKS = ("--hosts", 2, "--ranks-per-host", 2)


def printed(*arguments):
    ran = penstock("plan", *arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def programs_of_sets():
    """By "NAME/ROUTE", the programs of a set's buckets; none where no set can be made."""
    found = {}
    for line in (ROOT / "core/set/methods/programs.txt").read_text().splitlines():
        if not line.startswith(" "):
            names = line.removesuffix(":").split()
            found.update({name: set() for name in names})
        elif line.strip() != "refused":
            for name in names:
                found[name].add(line.strip())
    return found


def on_route(name, route):
    """The file of conf/ on another route, in its first stage."""
    text = (ROOT / "conf" / f"{name}.toml").read_text().split("\n[[switch]]")[0]
    return re.sub(r"\nroute[^\n]*", "", text, count=1).replace("[scheme]\n", f'[scheme]\nroute = "{route}"\n', 1)


@pytest.mark.parametrize("route", ROUTES)
def test_programs_are_those_of_a_set_for_every_file_of_conf(tmp_path, route):
    model, scheme = tmp_path / "model.csv", tmp_path / "scheme.toml"
    model.write_text(SHAPES)
    expected = {name.split("/")[0]: programs for name, programs in programs_of_sets().items() if name.endswith("/" + route)}
    assert len(expected) >= 35
    found = {}
    for name in expected:
        scheme.write_text(on_route(name, route))
        ran = penstock("plan", "--program", scheme, "--model", model, *RANKS, "--json")
        assert ran.returncode == 0 or ran.stderr.startswith(("penstock: ", str(scheme))), f"{name}: {ran.stderr}"
        buckets = json.loads(ran.stdout)["buckets"] if ran.returncode == 0 else []
        assert {bucket["route"] for bucket in buckets} <= {route}
        found[name] = {"; ".join(bucket["program"]) for bucket in buckets}
    assert found == expected


def test_every_bucket_of_every_phase_is_told_with_its_gradients():
    found = printed("--program", ROOT / "conf/acp-sgd.toml", "--model", "vgg16", "--hosts", 8)
    assert list(found) == ["model", "cluster", "costs", "scheme", "explanation", "buckets"]
    assert found["scheme"] == "acp-sgd" and found["model"]["name"] == "vgg16" and found["cluster"]["hosts"] == 8
    assert all(set(bucket) == {"phase", "number", "route", "gradients", "program"} for bucket in found["buckets"])
    assert {bucket["phase"] for bucket in found["buckets"]} == {0, 1}
    for phase in (0, 1):
        buckets = [bucket for bucket in found["buckets"] if bucket["phase"] == phase]
        assert [bucket["number"] for bucket in buckets] == list(range(len(buckets)))
        assert sum(len(bucket["gradients"]) for bucket in buckets) == found["model"]["gradients"]


def test_text_gives_each_program_once_with_what_its_stages_wait_for():
    ran = penstock("plan", "--program", ROOT / "conf/dear.toml")
    buckets = {"; ".join(bucket["program"]) for bucket in printed("--program", ROOT / "conf/dear.toml")["buckets"]}
    head, *tables = ran.stdout.strip().split("\n\n")
    assert re.search(r"^scheme +dear: compressor none, memory none, collective \S+, scheduler dear$", head, re.MULTILINE)
    assert len(tables) == len(buckets) == 1
    title, columns, *stages = tables[0].splitlines()
    assert re.fullmatch(r"phase 0, buckets 0 to \d+, route split:", title) and columns.split("  ")[0] == "STAGE"
    assert {"; ".join(stage.split("  ")[0] for stage in stages)} == buckets
    assert any(re.fullmatch(r"defer +the next forward", stage) for stage in stages)
    assert sum(bool(re.fullmatch(r"exchange +messages +exchange", stage)) for stage in stages) == 2


def test_strict_runs_ask_all_ranks_before_they_compensate(tmp_path):
    scheme = tmp_path / "strict.toml"
    scheme.write_text((ROOT / "conf/topk-residual.toml").read_text() + '\n[runtime]\nnonfinite = "strict"\n')
    for bucket in printed("--program", scheme)["buckets"]:
        assert bucket["program"][:5] == ["load", "begin", "measure", "ask", "compensate"]


# ResNet-50's payloads take 2.4 MiB a rank: 64 ranks need 160 MiB, and 27 payloads fit 64 MiB, one of them the own.
def test_payloads_above_the_limit_come_in_slices_of_ranks(tmp_path):
    scheme = tmp_path / "small.toml"
    scheme.write_text((ROOT / "conf/topk-residual.toml").read_text() + "\n[runtime]\narena_limit_mb = 64\n")
    for bucket in printed("--program", scheme, "--model", "resnet50", "--hosts", 64)["buckets"]:
        assert bucket["program"] == (["load", "begin", "measure", "ask", "compensate", "encode", "exchange", "read", "decode"]
                                     + 2 * ["exchange", "decode"] + ["finish", "give back", "store"])
    assert all(bucket["program"].count("exchange") == 1
               for bucket in printed("--program", scheme, "--model", "resnet50", "--hosts", 16)["buckets"])


@pytest.mark.pages
def test_the_page_shows_what_is_printed():
    page = (ROOT / "docs/plan.md").read_text()
    command, shown = re.search(r"```sh\npenstock (plan --program [^\n]+)\n```\n\n```text\n(.*?)```", page, re.DOTALL).groups()
    assert penstock(*command.split(), cwd=ROOT).stdout == shown


@pytest.mark.parametrize(("arguments", "words"), [
    (["conf"], ["--program conf: it holds", "expected the file of one"]),
    (["conf/none-such.toml"], ["conf/none-such.toml: there is no such configuration file"]),
    (["conf/sign-sgd-majority.toml", "--hosts", 32768], ["payloads of 32768 ranks", "runtime.arena_limit_mb", "votes"]),
    (["conf/topk-residual.toml", "--hosts", 100000], ["100000"]),
    (["conf/topk-residual.toml", "--scheme", "conf/dgc.toml"], ["--program", "--scheme"]),
    (["conf/topk-residual.toml", "--sweep", "ranks=2..8"], ["--program", "--sweep"]),
    (["conf/topk-residual.toml", "--worth", 0.1], ["--program", "--worth"]),
    (["conf/topk-residual.toml", "--html", "page.html"], ["--program", "--html"]),
])  # fmt: skip
def test_what_cannot_be_told_is_refused_by_name(arguments, words):
    ran = penstock("plan", "--program", *arguments, cwd=ROOT)
    assert ran.returncode != 0 and ran.stdout == ""
    assert all(word in ran.stderr for word in words), ran.stderr


def test_a_model_without_room_on_this_machine_ends_in_a_sentence():
    half_a_gigabyte = 1 << 29
    ran = subprocess.run([COMMAND, "plan", "--program", ROOT / "conf/topk-residual.toml", "--model", "bert-large"],
                         capture_output=True, text=True, timeout=300, check=False,
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (half_a_gigabyte, half_a_gigabyte)))
    assert ran.returncode == 1 and ran.stdout == ""
    assert "the buckets of set 'topk-residual'" in ran.stderr and "name a smaller model" in ran.stderr
