"""docs/plan.md sets measured steps beside what `penstock plan` predicts of them: it still predicts that, and it is near."""

import sys

import pytest
from command_test import ROOT
from plan_test import schemes

sys.path.insert(0, str(ROOT / "tools"))

from benches import resnet50_backward  # noqa: E402


def predicted_ms(folder, compressor, scheduler, route, ranks_per_host, link, backward_ms, forward_ms=0.0, options=""):
    """A step of ResNet-50 on four hosts, whose gradients are ready when they were in a real backward."""
    profile = folder / "profile.csv"
    profile.write_text(resnet50_backward.profile(resnet50_backward.read(), backward_ms, forward_ms))
    scheme = folder / "scheme.toml"
    memory = "none" if compressor == "none" else "residual"
    scheme.write_text(f'[scheme]\ncompressor = "{compressor}"\nmemory = "{memory}"\nscheduler = "{scheduler}"\nroute = "{route}"\n{options}')
    found = schemes("--model", profile, "--hosts", 4, "--ranks-per-host", ranks_per_host, "--link", link, "--scheme", scheme)
    return found["scheme"]["step_ms"]


def measured_steps(heading):
    """The rows of the page's table that begins with this column, which compares measured steps with predicted ones."""
    section = (ROOT / "docs/plan.md").read_text().split("## Against measured steps")[1].split("##")[0]
    table = section.split(f"\n| {heading} |")[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("| ")]


@pytest.mark.pages
def test_the_page_compares_with_measured_steps_as_they_are_predicted(tmp_path):
    rows = measured_steps("compressor")
    assert len(rows) >= 15
    for *premises, measured, shown in rows:
        predicted = predicted_ms(tmp_path, *premises)
        assert f"{predicted:.0f}" == shown, f"{premises}: {predicted:.0f} ms"
        assert 0.6 < predicted / float(measured) < 1.05, premises
        if premises[0] in ("topk", "none") and premises[1] != "syncea" and premises[3] == "1":
            assert 0.87 < predicted / float(measured) < 1.02, premises


@pytest.mark.pages
def test_the_page_compares_steps_with_a_forward_as_they_are_predicted(tmp_path):
    rows = measured_steps("scheduler")
    assert len(rows) >= 12
    for words, link, forward_ms, backward_ms, measured, shown in rows:
        scheduler, _, groups = words.partition(", ")
        options = f"\n[scheduler.{scheduler}]\nthreshold_bytes = {int(groups.removesuffix(' MiB')) << 20}\n" if groups else ""
        route = "split" if scheduler == "dear" else "flat"
        predicted = predicted_ms(tmp_path, "none", scheduler, route, 1, link, float(backward_ms), float(forward_ms), options)
        assert f"{predicted:.0f}" == shown, f"{words}: {predicted:.0f} ms"
        assert (0.9 if float(forward_ms) else 0.85) < predicted / float(measured) < 1.02, words
