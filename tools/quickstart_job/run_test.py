"""The job itself, short: on hosts with links of a rate, on this host, and where no hosts can be made."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest
import warm_python

from hosts import needed

TOOLS = pathlib.Path(__file__).resolve().parents[1]
SHORT = ("--task", "digits", "--schemes", "s-sgd,qsgd", "--progress", "lines", "--bucket-bytes", "65536")

needs_hosts = needed.needs_hosts()


def environment():
    paths = {"PYTHONPATH": f"{TOOLS}:{TOOLS.parent / 'frontends/python'}"}
    return os.environ | paths | warm_python.with_children()


def job(out, *arguments, before=()):
    python = sys.executable if before else warm_python.executable()  # the rights of a process do not reach the warm python
    return [*before, python, "-m", "quickstart_job", "--out", out, *SHORT, *arguments]


def run(out, *arguments, before=()):
    command = job(out, *arguments, before=before)
    ran = subprocess.run(command, cwd=TOOLS, env=environment(), capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (out / "log.txt").read_text() == ran.stdout
    return ran.stdout, json.loads((out / "summary.json").read_text())


@needs_hosts
def test_the_ranks_run_on_hosts_with_links_of_the_rate(tmp_path):
    said, summary = run(tmp_path, "--link", "200mbit", "--steps", "10")
    assert "4 hosts with links of 200 Mb/s" in said and summary["link"] == "200mbit" and summary["ranks"] == 4
    dense, coded = summary["schemes"]
    # An all-reduce of four moves 3/2 of what it is given; no faster than the link lets it (less what passes at once).
    assert dense["moved_bytes_per_step"] == pytest.approx(1.5 * dense["payload_bytes_per_step"], rel=0.01)
    assert dense["dense_moved_bytes_per_step"] == pytest.approx(1.5 * dense["gradient_bytes_per_step"], rel=0.01)
    assert dense["median_step_ms"] > 8e3 * (dense["moved_bytes_per_step"] - 2 * 50_000) / 200e6
    # A gather of four moves three times what it is given.
    assert coded["moved_bytes_per_step"] == pytest.approx(3 * coded["payload_bytes_per_step"], rel=0.1)
    assert coded["reduction"] > 3 and all(entry["replicas_equal"] for entry in summary["schemes"])
    assert dense["steps"] == 10 and len(dense["losses"]) == len(dense["step_ms"]) == 10


@needed.needs_far_hosts()
def test_over_a_distance_a_step_waits_for_it_and_the_router_says_how_it_fared(tmp_path):
    said, summary = run(tmp_path, "--link", "wan", "--steps", "5")
    assert "4 hosts with links of 30 Mb/s, 50 ms round trip, 0.1 % loss" in said and summary["link"] == "wan"
    assert "the router carried" in said.splitlines()[-1]
    dense, coded = summary["schemes"]
    assert dense["median_step_ms"] > 8e3 * dense["moved_bytes_per_step"] / 30e6 and coded["median_step_ms"] > 25.0
    assert all(entry["replicas_equal"] for entry in summary["schemes"])


def test_without_links_the_ranks_share_this_host(tmp_path):
    said, summary = run(tmp_path, "--link", "none", "--steps", "10", "--most-steps", "12")
    assert "4 ranks of this host" in said and summary["link"] is None and summary["ranks"] == 4
    assert 10 <= len(summary["schemes"][1]["losses"]) <= 12 and (tmp_path / "losses.png").stat().st_size > 10_000


def test_ranks_that_train_apart_are_judged_by_the_model_that_they_share(tmp_path):
    _, summary = run(tmp_path, "--link", "none", "--steps", "10", "--schemes", "s-sgd,sparseloco-every-3")
    dense, apart = summary["schemes"]
    assert apart["round_steps"] == 3 and apart["replicas_equal"] and len(apart["losses"]) == len(apart["step_ms"]) == 10
    # The shared model changes when a mean arrives, after steps 4 and 7: four batches are judged by the weights of the start.
    assert apart["losses"][0] == pytest.approx(dense["losses"][0], rel=1e-6)
    first, second, third = apart["losses"][:4], apart["losses"][4:7], apart["losses"][7:]
    assert max(first) - min(first) < 0.02 and max(second) < min(first) - 0.02 and dense["losses"][3] < min(first)
    assert max(third) < min(first) - 0.05
    # Three exchanges in ten steps; dense would have had ten.
    assert apart["dense_moved_bytes_per_step"] == dense["dense_moved_bytes_per_step"]
    assert apart["gradient_bytes_per_step"] == dense["gradient_bytes_per_step"] and apart["reduction"] > 15


def test_a_scheme_of_the_users_is_compared_with_dense(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[scheme]\ncompressor = "qsgd"\n\n[compressor.qsgd]\nbits = 8\n\n[runtime]\nlog_level = "warning"\n')
    _, summary = run(tmp_path, "--link", "none", "--steps", "5", "--schemes", "s-sgd", "--config", str(file))
    dense, mine = summary["schemes"]
    assert dense["dense"] and dense["reduction"] == pytest.approx(1.0, rel=0.01)
    assert mine["name"] == "mine" and not mine["dense"] and 1.5 < mine["reduction"] < 2.5  # a quarter, gathered by four


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can give up the right to make namespaces"
)
def test_without_the_right_to_make_hosts_it_says_so_in_one_line_and_goes_on(tmp_path):
    powerless = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
    said, summary = run(tmp_path, "--link", "100mbit", "--steps", "5", before=powerless)
    lines = said.splitlines()
    assert "no links can be shaped here" in lines[0] and "not permitted" in lines[0]
    assert "4 ranks of this host" in lines[1] and summary["link"] is None


def test_the_timeline_has_backward_and_several_buckets_with_scheme_and_bytes(tmp_path):
    run(tmp_path, "--link", "none", "--steps", "5", "--schemes", "qsgd")
    trace = json.loads((tmp_path / "timeline.json").read_text())
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    spans = [event for event in events if event.get("ph") == "X" and event["args"].get("step") == 3]
    exchanges = [event for event in spans if event["name"] == "exchange" and event["args"].get("bytes")]
    assert len({event["tid"] for event in exchanges}) >= 3
    assert all("qsgd" in event["args"]["scheme"] for event in exchanges)
    assert any(event["name"] == "backward" for event in spans)


def hear_interrupts():
    """A suite in the background of a shell has SIGINT ignored, and hands that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@needs_hosts
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["interrupt", "termination"])
def test_an_interrupt_ends_the_ranks_and_their_hosts(number, tmp_path):
    command = job(tmp_path, "--link", "100mbit", "--steps", "2000")
    ran = subprocess.Popen(command, cwd=TOOLS, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           preexec_fn=hear_interrupts)
    for line in ran.stdout:
        if " step " in line:  # all four are at work
            break
    ran.send_signal(number)
    ran.stdout.read()  # ends with the last process that was started
    assert ran.wait(timeout=60) == 128 + number and not (tmp_path / "summary.json").exists()


def test_a_wrong_rate_is_named_before_anything_starts(tmp_path):
    command = job(tmp_path, "--link", "9999tbit")
    ran = subprocess.run(command, cwd=TOOLS, env=environment(), capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2 and "'9999tbit'" in ran.stderr and not (tmp_path / "log.txt").exists()
