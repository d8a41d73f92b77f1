"""Scripts that know only Horovod, run on penstock, and the messages about Horovod's variables."""

import os
import re
from pathlib import Path

import pytest
import torch
from launch import run_python, run_ranks
from long_runs import IS_LONG, cases

from penstock.common.environment import HONOURED, NOT_HONOURED, line, without_effect
from penstock.common.runtime import Topology

PACKAGE = Path(__file__).resolve().parents[1]
SCRIPTS = Path(__file__).resolve().parent / "scripts"
WORLD = Topology(0, 2, 0, 2, 0, 1)


# ---- scripts ----


def test_a_script_of_horovods_shape_runs_unchanged():
    # In long runs as users start it, under mpirun: each rank has an interpreter that imports torch
    # itself, with its own seed for the hashes of strings.
    done = run_ranks(
        "../scripts/train_classes.py",
        2,
        *("--epochs", "4", "--gradient-predivide-factor", "2.0"),
        module="penstock.horovod",
        real=IS_LONG,
    )
    assert done.returncode == 0, done.stdout
    assert all(f"rank {rank} of 2 done" in done.stdout for rank in (0, 1)), done.stdout
    said = next(text for text in done.stdout.splitlines() if text.startswith("losses"))
    losses = [float(word) for word in said.split()[1:]]
    assert len(losses) == 4 and losses[-1] < 0.8 * losses[0], losses


@pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="this torch has no GradScaler for the CPU")
def test_a_script_with_scaling_and_a_checkpoint_goes_on_in_new_processes(tmp_path):
    for last in (6, 12):
        done = run_ranks(
            "../scripts/train_scaled.py", 2, str(tmp_path), module="penstock.horovod"
        )
        assert done.returncode == 0, done.stdout
        assert all(f"rank {rank} done at step {last}" in done.stdout for rank in (0, 1))


def test_a_script_of_image_training_goes_on_from_its_last_epoch(tmp_path):
    path = str(tmp_path / "checkpoint-{epoch}.pt")
    for first, last in ((0, 2), (2, 4)):
        done = run_ranks(
            "../scripts/train_resumed.py",
            2,
            *("--checkpoint-format", path, "--epochs", str(last)),
            module="penstock.horovod",
        )
        assert done.returncode == 0, done.stdout
        for rank in (0, 1):
            assert f"rank {rank} went from epoch {first} to {last}" in done.stdout, done.stdout
    assert (tmp_path / "checkpoint-4.pt").exists()


@pytest.mark.parametrize("ranks", cases((1, 3), (3,)))
def test_a_script_of_fine_tuning_runs_unchanged(ranks):
    done = run_ranks("../scripts/fine_tune.py", ranks, module="penstock.horovod")
    assert done.returncode == 0, done.stdout
    # Lines of several ranks may be mixed.
    said = re.findall(r"done, loss (\d+\.\d+) to (\d+\.\d+)", done.stdout)
    assert len(said) == ranks, done.stdout
    losses = set(said)
    assert len(losses) == 1, done.stdout
    ((first, last),) = losses
    assert float(last) < float(first)


def test_the_runner_says_how_it_is_used(tmp_path):
    done = run_python("-m", "penstock.horovod")
    assert done.returncode == 2 and "usage" in done.stderr
    done = run_python("-m", "penstock.horovod", str(tmp_path / "none.py"))
    assert done.returncode == 1 and "none.py is not a file" in done.stderr


# ---- the names ----

NAMES = """
import penstock.horovod_alias
import horovod, horovod.torch as hvd, horovod.torch.mpi_ops, horovod.torch.elastic
import horovod.runner.util.threads
from horovod import torch as other
from horovod.common.util import env
from horovod.torch.mpi_ops import _basics
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState
from horovod import run
from horovod.runner import run as the_same
assert run is the_same
import penstock.torch
assert hvd is other is penstock.torch is horovod.torch
assert horovod.__version__
for name in ("horovod.tensorflow", "horovod.torch.nothing"):
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        assert name in str(error) and "penstock stands for horovod" in str(error), error
    else:
        raise AssertionError(name)
try:
    horovod.spark
except AttributeError as error:
    assert "horovod.spark is not offered" in str(error), error
else:
    raise AssertionError("horovod.spark")
print("all found")
"""


def test_horovods_names_find_penstock():
    done = run_python("-c", NAMES)
    assert done.stdout == "all found\n" and done.stderr == "", done.stderr


def test_an_installed_horovod_is_hidden_only_when_asked_for(tmp_path):
    installed = tmp_path / "horovod"
    installed.mkdir()
    (installed / "__init__.py").write_text("mark = 'the installed one'\n")
    path = f"{PACKAGE}{os.pathsep}{tmp_path}"
    done = run_python("-c", "import penstock.torch, horovod; print(horovod.mark)", PYTHONPATH=path)
    assert done.stdout == "the installed one\n" and done.stderr == "", done.stderr
    done = run_python("-c", NAMES, PYTHONPATH=path)
    assert done.stdout == "all found\n", done.stderr
    assert done.stderr.count("\n") == 1 and str(installed) in done.stderr, done.stderr
    done = run_python("-c", "import horovod, penstock.horovod_alias", PYTHONPATH=path)
    assert "ImportError" in done.stderr and "import penstock.horovod_alias first" in done.stderr


def test_nothing_named_horovod_lies_in_the_package():
    assert not (PACKAGE / "horovod").exists() and not (PACKAGE / "horovod.py").exists()


# ---- Horovod's variables ----


def test_variables_without_effect_are_named_with_a_reason():
    assert line({"PATH": "/bin", "HOROVOD_FUSION_THRESHOLD": "7"}, WORLD) == ""
    said = line({"HOROVOD_CYCLE_TIME": "5", "HOROVOD_NEW_THING": "1"}, WORLD)
    assert said.count("\n") == 0
    assert "HOROVOD_CYCLE_TIME (nothing waits for a cycle)" in said
    assert "HOROVOD_NEW_THING (unknown)" in said
    for name in NOT_HONOURED:
        assert [text.split()[0] for text in without_effect({name: "1"}, WORLD)] == [name]
    for name in HONOURED:
        assert without_effect({name: "1"}, WORLD) == []
    assert without_effect({"HOROVOD_AUTOTUNE_LOG": "/tmp/x"}, WORLD)[0].endswith("themselves)")


def test_variables_that_ask_for_what_is_so_need_no_word():
    for value in ("", "0", "false"):
        assert without_effect({"HOROVOD_AUTOTUNE": value}, WORLD) == []
    assert without_effect({"HOROVOD_CONTROLLER": "mpi", "HOROVOD_LOCAL_SIZE": "2"}, WORLD) == []
    assert without_effect({"HOROVOD_CONTROLLER": "gloo"}, WORLD)
    assert without_effect({"HOROVOD_LOCAL_SIZE": "4"}, WORLD) == [
        "HOROVOD_LOCAL_SIZE (the launcher says 2)"
    ]


@pytest.mark.parametrize("level", ("warning", "error"))
def test_init_names_them_in_one_line_at_the_default_log_level(level):
    code = f"""
import penstock.torch as hvd
hvd.init(config_text='[runtime]\\nlog_level = "{level}"\\n')
"""
    done = run_python("-c", code, HOROVOD_TORUS_ALLREDUCE="1", HOROVOD_CYCLE_TIME="3")
    assert done.returncode == 0, done.stderr
    lines = [text for text in done.stderr.splitlines() if "HOROVOD_" in text]
    assert len(lines) == (1 if level == "warning" else 0), done.stderr


@pytest.mark.pages
def test_every_variable_is_in_the_table_of_the_docs():
    page = (PACKAGE.parents[1] / "docs" / "configuration.md").read_text()
    missing = [name for name in (*HONOURED, *NOT_HONOURED) if f"`{name}`" not in page]
    assert not missing, missing


# ---- forked processes ----

FORKED = """
import os, sys, torch, penstock.torch as hvd
hvd.init()
SHUTDOWN
child = os.fork()
if child == 0:
    CHILD
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("parent goes on", flush=True)
"""
CALL = """
    assert (hvd.rank(), hvd.size()) == (0, 1)
    try:
        hvd.allreduce(torch.ones(2))
    except (RuntimeError, ValueError) as error:
        assert "forked" in str(error), error
    else:
        sys.exit(3)
"""


@pytest.mark.parametrize(
    "shutdown, child", (("", CALL.strip()), ("hvd.shutdown()", "pass"), ("", "pass"))
)
def test_a_forked_child_is_told_and_ends(shutdown, child):
    # A new interpreter, if both processes must take down a complete run at their end.
    real = (shutdown, child) == ("", "pass")
    code = FORKED.replace("SHUTDOWN", shutdown).replace("CHILD", child)
    done = run_python("-c", code, real=real)
    assert done.stdout == "parent goes on\n", done.stderr
