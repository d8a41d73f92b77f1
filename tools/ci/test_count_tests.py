"""Counting: every way in which a test can fail is counted as a failure, whoever reports it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("count_tests.py")


def count(*arguments: object) -> list[str]:
    line = [sys.executable, SCRIPT, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines()


def ctest_report(folder: Path, *cases: str) -> Path:
    path = folder / "ctest.xml"
    path.write_text(f"<testsuite>{''.join(cases)}</testsuite>")
    return path


def test_a_program_counts_with_each_of_its_tests(tmp_path: Path) -> None:
    report = ctest_report(tmp_path, '<testcase name="kernels_test" status="run"/>')
    (tmp_path / "kernels_test.xml").write_text(
        '<testsuites><testsuite><testcase name="A" classname="Select" status="run" result="completed"/>'
        '<testcase name="B" classname="Select" status="run" result="completed"><failure/></testcase>'
        '<testcase name="C" classname="Select" status="run" result="skipped"><skipped/></testcase>'
        '<testcase name="D" classname="Select" status="notrun" result="suppressed"/></testsuite></testsuites>'
    )
    assert count("--ctest", report, tmp_path, 1) == ["1 1 2", f"{tmp_path.name}: kernels_test: Select.B"]


def test_a_program_that_died_counts_as_one_failure(tmp_path: Path) -> None:
    report = ctest_report(tmp_path, '<testcase name="dies_test" status="fail"><failure message=""/></testcase>')
    assert count("--ctest", report, tmp_path, 1) == ["0 1 0", f"{tmp_path.name}: dies_test"]


def test_a_program_that_fails_after_its_tests_passed_counts_as_a_failure(tmp_path: Path) -> None:
    report = ctest_report(tmp_path, '<testcase name="leaks_test" status="fail"><failure message=""/></testcase>')
    (tmp_path / "leaks_test.xml").write_text('<testsuites><testcase name="A" classname="B" status="run"/></testsuites>')
    assert count("--ctest", report, tmp_path, 1)[0] == "1 1 0"


def test_a_report_that_cannot_be_read_is_one_failure_and_the_others_still_count(tmp_path: Path) -> None:
    cases = ('<testcase name="torn_test" status="run"/>', '<testcase name="whole_test" status="run"/>')
    report = ctest_report(tmp_path, *cases)
    (tmp_path / "torn_test.xml").write_text('<testsuites></testsuites><testsuites></testsuites>')
    assert count("--ctest", report, tmp_path, 1) == [
        "1 1 0", f"{tmp_path.name}: torn_test: its report cannot be read"
    ]


def test_a_program_that_is_not_there_counts_as_a_failure(tmp_path: Path) -> None:
    case = '<testcase name="gone_test" status="notrun"><skipped message="Unable to find executable"/></testcase>'
    assert count("--ctest", ctest_report(tmp_path, case), tmp_path, 0) == ["0 1 0", f"{tmp_path.name}: gone_test"]


def test_a_test_that_skips_itself_counts_as_skipped(tmp_path: Path) -> None:
    case = (
        '<testcase name="cuda" status="notrun">'
        '<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>'
    )
    assert count("--ctest", ctest_report(tmp_path, case), tmp_path, 0) == ["0 0 1"]


def test_pytest_reports_and_steps_are_added(tmp_path: Path) -> None:
    report = tmp_path / "pytest.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="t" name="a"/><testcase classname="t" name="b"><error/></testcase>'
        '<testcase classname="t" name="c"><skipped/></testcase></testsuite></testsuites>'
    )
    assert count("--pytest", report, 1, "--step", "format check", 0, "--step", "build", 2) == ["2 2 1", "t.b", "build"]


def test_a_failed_test_is_followed_by_the_end_of_what_it_said(tmp_path: Path) -> None:
    said = "&#10;".join(f"line {i}" for i in range(30))
    report = tmp_path / "pytest.xml"
    report.write_text(
        f'<testsuites><testsuite><testcase classname="t" name="b"><failure>{said}</failure></testcase>'
        "</testsuite></testsuites>"
    )
    lines = count("--pytest", report, 1)
    assert lines[:3] == ["0 1 0", "t.b", "      line 10"] and lines[-1] == "      line 29"


def test_the_slowest_are_named_with_their_seconds_the_longest_first(tmp_path: Path) -> None:
    report = ctest_report(tmp_path, '<testcase name="quick_test" time="0.2"/>', '<testcase name="slow_test" time="61.7"/>')
    pytest_report = tmp_path / "pytest.xml"
    pytest_report.write_text('<testsuites><testcase classname="tests.a" name="test_b" time="7.4"/></testsuites>')
    assert count("--slowest", 2, "--ctest", report, tmp_path, 0, "--pytest", pytest_report, 0) == [
        f"    62 s  {tmp_path.name}: slow_test", "     7 s  tests.a.test_b"
    ]
