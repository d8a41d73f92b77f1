"""The libtorch frontend on several ranks: its own checks, and the example against equal training in Python."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from long_runs import cases

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BUILD = ROOT / "build/release"
PENSTOCK = BUILD / "bin/penstock"
DIGITS, TEXT = (BUILD / f"bin/penstock-libtorch-{task}" for task in ("digits", "text"))
CHECKS = BUILD / "tests/libtorch_frontend_test"
DEVICE_CHECKS = BUILD / "tests/libtorch_device_test"
ON_SIMULATED_DEVICES = BUILD / "tests/libtorch_on_simulated_devices"  # a runtime with simulated devices beside it
STEPS = 12
# Scheme of conf/ and momentum of SGD. Memory dgc has its own momentum.
SCHEMES = (("s-sgd", "0.9"), ("topk-residual", "0"), ("dgc", "0"), ("power-sgd", "0.9"))

pytestmark = pytest.mark.skipif(
    not DIGITS.exists() or not CHECKS.exists(),
    reason="the libtorch frontend was not built: cmake found no libtorch (its line on frontends/libtorch says why)",
)


def run(*command: str | Path, timeout: float = 120.0, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    environment.update(OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT / "frontends/python"), **variables)
    return subprocess.run(
        [str(word) for word in command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )


def run_ranks(ranks: int, *command: str | Path, config: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """Under `penstock run`, with a scheme of conf/."""
    chosen = ["--config", ROOT / f"conf/{config}.toml"] if config else []
    return run(PENSTOCK, "run", "-np", str(ranks), *chosen, "--", *command, **more)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("digits") / "digits.bin"
    done = run(sys.executable, HERE.parent / "example/export.py", "digits", file)
    assert done.returncode == 0, done.stderr
    return file


@pytest.fixture(scope="module")
def initial(data: Path) -> Path:
    """Initial weights for both programs: the weights that the example makes from its seed, unchanged at rate 0."""
    file = data.with_name("initial.weights")
    done = run(DIGITS, "--data", data, "--steps", "1", "--rate", "0", "--weights", file)
    assert done.returncode == 0, done.stderr
    return file


@pytest.mark.parametrize("ranks", cases((2, 3, 4), (3,)))
def test_the_checks_hold_on_every_rank(ranks, tmp_path):
    # By default different parameters give only a warning, before the first step.
    comparing = tmp_path / "comparing.toml"
    comparing.write_text('[runtime]\ncheck_parameters = "error"\ncheck_parameters_every = 1\n')
    # One test counts how often tensors are read, and comparing reads them; ctest runs it on one rank.
    checks = (CHECKS, "--gtest_color=no", "--gtest_filter=-*APlainLoopReadsNoGradientOnceMore")
    done = run(PENSTOCK, "run", "-np", str(ranks), "--config", comparing, "--", *checks)
    passed = re.findall(r"\[  PASSED  \] (\d+) tests", done.stdout)
    assert done.returncode == 0 and len(passed) == ranks, done.stdout[-6000:] + done.stderr[-2000:]
    assert "SKIPPED" not in done.stdout and int(passed[0]) > 40


@pytest.mark.parametrize("ranks", (1, 2))
def test_gradients_on_devices_have_the_bits_of_the_cpu_on_every_rank(ranks):
    libraries = f"{ON_SIMULATED_DEVICES}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    done = run_ranks(ranks, "env", f"LD_LIBRARY_PATH={libraries}", DEVICE_CHECKS, "--gtest_color=no")
    passed = re.findall(r"\[  PASSED  \] (\d+) tests", done.stdout)
    assert done.returncode == 0 and passed == ["3"] * ranks, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.parametrize("ranks", cases((1, 2, 4), (2,)))
def test_training_in_cpp_gives_the_bits_of_training_in_python(ranks, data, initial, tmp_path):
    trained = [word for name, momentum in SCHEMES for word in ("--train", ROOT / f"conf/{name}.toml", momentum)]
    python = run_ranks(
        ranks, sys.executable, HERE / "train_example.py", "--task", "digits", "--data", data, "--initial", initial, "--steps", str(STEPS), "--out",
        tmp_path, *trained,
    )  # fmt: skip
    assert python.returncode == 0, python.stdout + python.stderr
    first_losses = set()
    for name, momentum in SCHEMES:
        losses, weights = tmp_path / f"{name}.cpp.json", tmp_path / f"{name}.cpp.weights"
        cpp = run_ranks(
            ranks, DIGITS, "--data", data, "--initial", initial, "--steps", str(STEPS), "--momentum", momentum, "--losses",
            losses, "--weights", weights, config=name,
        )  # fmt: skip
        assert cpp.returncode == 0, cpp.stdout + cpp.stderr
        ours, theirs = json.loads(losses.read_text()), json.loads((tmp_path / f"{name}.json").read_text())
        assert ours["ranks"] == ranks and len(ours["losses"]) == STEPS
        assert ours["losses"] == theirs["losses"], name
        assert weights.read_bytes() == (tmp_path / f"{name}.weights").read_bytes() != initial.read_bytes(), name
        first_losses.add(ours["losses"][0])
    assert len(first_losses) == 1  # they began alike


@pytest.mark.parametrize(
    ("scheme", "way"),
    (("s-sgd", ("--every", "5")), ("topk-residual", ("--every", "6", "--fragments", "3", "--delay", "1", "--mix", "0.5"))),
    ids=("diloco", "streaming"),
)
def test_ranks_that_train_apart_in_cpp_have_the_bits_of_ranks_in_python(scheme, way, data, initial, tmp_path):
    start = ("--data", data, "--initial", initial, "--steps", str(STEPS + 1), *way)
    config = ROOT / f"conf/{scheme}.toml"
    python = run_ranks(
        2, sys.executable, HERE / "train_example.py", "--task", "digits", *start, "--out", tmp_path, "--train", config, "0"
    )
    assert python.returncode == 0, python.stdout + python.stderr
    losses, weights = tmp_path / "cpp.json", tmp_path / "cpp.weights"
    cpp = run_ranks(2, DIGITS, *start, "--losses", losses, "--weights", weights, config=scheme)
    assert cpp.returncode == 0, cpp.stdout + cpp.stderr
    theirs = json.loads((tmp_path / f"{scheme}.json").read_text())
    assert json.loads(losses.read_text())["losses"] == theirs["losses"]
    assert weights.read_bytes() == (tmp_path / f"{scheme}.weights").read_bytes() != initial.read_bytes()


@pytest.mark.parametrize(("ranks", "scheme"), ((2, "topk-residual"), (3, "power-sgd")))
def test_the_text_has_the_curve_of_training_in_python(ranks, scheme, tmp_path):
    data, initial, config = tmp_path / "text.bin", tmp_path / "initial.weights", ROOT / f"conf/{scheme}.toml"
    for command in (
        (sys.executable, HERE.parent / "example/export.py", "text", data),
        (TEXT, "--data", data, "--steps", "1", "--rate", "0", "--weights", initial),
    ):
        done = run(*command)
        assert done.returncode == 0, done.stderr
    start = ("--data", data, "--initial", initial, "--steps", str(STEPS))
    python = run_ranks(
        ranks, sys.executable, HERE / "train_example.py", "--task", "text", *start, "--out", tmp_path, "--train", config, "0"
    )
    assert python.returncode == 0, python.stdout + python.stderr
    losses, weights = tmp_path / "cpp.json", tmp_path / "cpp.weights"
    cpp = run_ranks(ranks, TEXT, *start, "--losses", losses, "--weights", weights, config=scheme)
    assert cpp.returncode == 0, cpp.stdout + cpp.stderr
    ours, theirs = json.loads(losses.read_text())["losses"], json.loads((tmp_path / f"{scheme}.json").read_text())["losses"]
    assert ours == theirs and ours[-1] < 0.9 * ours[0]
    assert weights.read_bytes() == (tmp_path / f"{scheme}.weights").read_bytes()


def test_the_example_gives_the_same_bits_under_the_variables_of_torchrun(data, initial, tmp_path):
    """torchrun also starts programs that are not Python. MPI is not used; messages go over UCX."""
    arguments = ("--data", data, "--initial", initial, "--steps", str(STEPS))
    weights = {name: tmp_path / f"{name}.weights" for name in ("mpi", "ucx")}
    over_mpi = run_ranks(3, DIGITS, *arguments, "--weights", weights["mpi"], config="topk-residual")
    assert over_mpi.returncode == 0, over_mpi.stderr
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", "--no-python")
    program = (DIGITS, *arguments, "--weights", weights["ucx"])
    over_ucx = run(*torchrun, *program, PENSTOCK_CONFIG=str(ROOT / "conf/topk-residual.toml"))
    assert over_ucx.returncode == 0, over_ucx.stderr
    assert weights["ucx"].read_bytes() == weights["mpi"].read_bytes() != initial.read_bytes()


def test_the_example_learns_and_shows_it(data, tmp_path):
    done = run_ranks(2, DIGITS, "--data", data, "--steps", "100", "--losses", tmp_path / "losses.json", config="topk-residual")
    assert done.returncode == 0, done.stdout + done.stderr
    losses = json.loads((tmp_path / "losses.json").read_text())["losses"]
    assert losses[-1] < 0.8 * losses[0]
    assert "step 100 of 100: loss" in done.stdout and "of the images held out are classified correctly" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    (
        (["--steps", "0"], 2, "--steps is '0', expected a number of at least 1"),
        (["--step", "5"], 2, "unknown argument '--step'"),
        (["--steps"], 2, "--steps needs a value after it"),
        (["--delay", "2"], 2, "--fragments, --delay and --mix need --every"),
        (["--data", "nowhere.bin"], 1, "nowhere.bin cannot be read; write it with"),
        (["--data", "README.md"], 1, "README.md is not a file of digits"),
    ),
)
def test_the_example_says_what_is_wrong_with_its_arguments(arguments, code, said):
    done = run(DIGITS, *arguments)
    assert done.returncode == code and said in done.stderr, done.stderr


@pytest.mark.parametrize("ranks", (1, 2))
def test_an_unknown_compressor_is_refused_on_every_rank(ranks, data, tmp_path):
    file = tmp_path / "wrong.toml"
    file.write_text('[scheme]\ncompressor = "topj"\n')
    # Given to the program alone, because `penstock run` would refuse it earlier.
    done = run_ranks(ranks, "env", f"PENSTOCK_CONFIG={file}", DIGITS, "--data", data)
    said = re.findall(r"^(?:\[\d\] )?penstock-libtorch-digits: (.*)$", done.stderr, re.MULTILINE)
    assert done.returncode == 1 and len(said) == ranks, done.stderr
    assert all('no compressor plugin "topj"; did you mean "topk"?' in line for line in said), said


@pytest.mark.parametrize("arguments", ((), ("fork",)), ids=("plainly", "after-a-fork"))
def test_a_program_may_end_without_shutdown(arguments):
    done = run_ranks(2, BUILD / "tests/libtorch_leaving_program", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 0 of 2 leaves" in done.stdout and "rank 1 of 2 leaves" in done.stdout
    assert "error" not in done.stderr, done.stderr


def test_a_program_that_trains_apart_may_end_without_shutdown(data, tmp_path):
    done = run_ranks(2, DIGITS, "--data", data, "--steps", "3", "--every", "2", "--losses", tmp_path / "nowhere/losses")
    assert done.returncode == 1, done.stderr
    assert "nowhere/losses cannot be written" in done.stderr and "signal" not in done.stderr, done.stderr


def test_a_rank_that_gives_up_leaves_nobody_waiting(data, tmp_path):
    """Rank 1 finds no weights and ends. Rank 0 gets an error and does not wait for gradients of rank 1."""
    script = f'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then last="{tmp_path}/nowhere/losses"; else last="{tmp_path}/losses"; fi\n'
    script += f'exec {DIGITS} --data {data} --steps 20 --initial "$last"\n'
    (tmp_path / "losses").write_bytes(bytes(4 * (64 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10)))
    done = run_ranks(2, "bash", "-c", script)
    assert done.returncode == 1, done.stderr
    assert "nowhere/losses cannot be read" in done.stderr
    assert "rank 1 gave the run up" in done.stderr, done.stderr
