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
    for part in ("overhead", "plugin-call", "overlap", "kernels", "schemes", "convergence"):
        assert f"\n{part} " in ran.stdout


@pytest.mark.parametrize("arguments", [("--json", "convergence"), ("kernels", "convergence")], ids=" ".join)
def test_convergence_elsewhere_than_alone_is_refused_with_what_to_do(arguments):
    ran = bench(*arguments)
    assert ran.returncode == 2 and "tools/bench convergence --help" in ran.stderr


def test_an_unknown_part_is_named_with_those_there_are():
    ran = bench("top-k")
    assert ran.returncode == 2
    assert "'top-k'" in ran.stderr and "kernels" in ran.stderr and "convergence" in ran.stderr and "[]" not in ran.stderr
