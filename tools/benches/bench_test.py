"""What tools/bench says of its parts is what it accepts."""

import pathlib
import subprocess
import sys

import pytest

BENCH = pathlib.Path(__file__).with_name("bench.py")


def bench(*arguments):
    return subprocess.run([sys.executable, BENCH, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_help_shows_no_part_that_cannot_be_named():
    ran = bench("--help")
    assert ran.returncode == 0 and "[]" not in ran.stdout
    for part in ("overhead", "sets", "plugin-call", "overlap", "kernels", "wire", "schemes", "outer", "convergence", "tune", "schedulers"):
        assert f"\n{part} " in ran.stdout


@pytest.mark.parametrize("part", ["convergence", "tune", "schedulers"])
@pytest.mark.parametrize("before", ["--json", "kernels"])
def test_a_part_with_its_own_options_elsewhere_than_alone_is_refused_with_what_to_do(before, part):
    ran = bench(before, part)
    assert ran.returncode == 2 and f"tools/bench {part} --help" in ran.stderr


@pytest.mark.parametrize("part", ["convergence", "tune", "schedulers", "routes", "ddp", "distance", "local", "step"])
def test_a_part_with_its_own_options_lists_them(part):
    ran = bench(part, "--help")
    assert ran.returncode == 0 and f"tools/bench {part}" in ran.stdout, ran.stderr


def test_an_unknown_part_is_named_with_those_there_are():
    ran = bench("top-k")
    assert ran.returncode == 2
    assert "'top-k'" in ran.stderr and "kernels" in ran.stderr and "convergence" in ran.stderr and "[]" not in ran.stderr
