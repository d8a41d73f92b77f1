"""`penstock plan --record`: the profile of a model, taken from a job that trains it."""

import json

import pytest
import warm_python
from command_test import penstock
from plan_test import plan, scheme_flags

JOB = """
import torch
import penstock.torch as hvd
hvd.init()
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
for _ in range(25):
    optimizer.zero_grad()
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
print("trained")
"""


def test_a_job_is_recorded_and_its_model_predicted(tmp_path):
    job, profile = tmp_path / "job.py", tmp_path / "mine.csv"
    job.write_text(JOB)
    ran = penstock("plan", "--record", profile, "--hosts", "2", "--json", *scheme_flags("topk-residual"), "--", "penstock", "run", "-np", "2", "--", warm_python.executable(), job)
    assert ran.returncode == 0, ran.stderr
    model = json.loads(ran.stdout)["model"]
    assert (model["gradients"], model["parameters"], model["name"]) == (4, 64 * 256 + 256 + 256 * 8 + 8, "mine")
    assert model["forward_ms"] > 0 and model["backward_ms"] > 0 and "over 20 steps" in model["about"]
    assert "trained" in ran.stderr
    rows = [line.split(",")[:2] for line in profile.read_text().splitlines()[4:]]
    assert sorted(rows) == [["0.bias", "256"], ["0.weight", "256x64"], ["2.bias", "8"], ["2.weight", "8x256"]]
    assert {rows[0][0][0], rows[-1][0][0]} == {"0", "2"} and rows[0][0][0] == "0"  # as forward goes
    assert plan("--model", profile, *scheme_flags("topk-residual"))["model"] == model


@pytest.mark.parametrize(
    ("words", "said"),
    [([], "--record needs the job"), (["--", "false"], "ended with status 1"), (["--", "true"], "left no profile in"),
     (["--", "no-such-program"], "ended with status 127")],
)  # fmt: skip
def test_a_job_that_leaves_no_profile_is_an_error_that_says_why(words, said, tmp_path):
    ran = penstock("plan", "--record", tmp_path / "mine.csv", *words)
    assert ran.returncode == 1 and said in ran.stderr and ran.stdout == ""


def test_a_job_is_run_only_to_be_recorded(tmp_path):
    ran = penstock("plan", "--", "true")
    assert ran.returncode == 1 and "--record FILE" in ran.stderr
    ran = penstock("plan", "--model", "vgg16", "--record", tmp_path / "mine.csv", "--", "true")
    assert ran.returncode != 0 and "--record" in ran.stderr
