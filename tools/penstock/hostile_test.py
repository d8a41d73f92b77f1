"""`penstock check` refuses what the core refuses in a plan, with the same sentence."""

import pytest

from command_test import BUILD, ROOT, findings

TABLE = [[part.strip() for part in line.split(" | ")]
         for line in (ROOT / "tests/plugins/hostile_needs.txt").read_text().splitlines()
         if line and not line.startswith("#")]


# By the source of the plugin: the test that fails, and what its sentence begins with.
SOURCES = {
    "identity": ("plan", "compressor 'identity-c' (compressor/identity-c): plan for gradient 'gradient"),
    "keep": ("plan", "memory 'keep-c' (memory/keep-c): plan for gradient 'gradient'"),
    "each": ("plans before measuring", "scheduler 'each-c': bucket 0 of its plan"),
}


@pytest.mark.parametrize(("name", "source", "statement", "expected"), TABLE, ids=[row[0] for row in TABLE])
def test_a_hostile_plan_fails_the_check_in_a_sentence(name, source, statement, expected):
    status, tests = findings(BUILD / f"tests/plugins/hostile_{name}/plugin.so")
    test, begins = SOURCES[source]
    verdict, reason = tests[test]
    assert status == 1 and verdict == "fail"
    assert begins in reason
    assert f": {expected}" in reason, f"{statement}: {reason}"
