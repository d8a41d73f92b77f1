#!/usr/bin/env python3
"""Runs failed tests once more, alone, where a busy machine can be the cause.

    second_try.py [--python PYTHON] [--gtest-filter FILTER] [arguments of count_tests.py]
    second_try.py --twenty [--python PYTHON]

A test runs again only if a limit of time ended it or it could not start, and only if at most two tests failed. It never
runs again after a wrong number, a crash, or any failure under a sanitizer. If all failed tests pass now, the status is 0
and each is named as `flaky`, with the line for tests/flaky.txt. That file names at most five tests: with a sixth the
status is 1.

--twenty, for tools/nightly: runs each test of tests/flaky.txt twenty times. The status is 1 if one fails, or if its line
is older than fourteen days: by then the test must be fixed, and its line removed.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import count_tests
from count_tests import Count, Failure

FLAKY = Path("tests/flaky.txt")
MOST_FAILED = 2
MOST_LISTED = 5
DAYS = 14
TIMES = 20
LIMIT_S = 1800  # for one test, in case it has no limit of its own

SANITIZERS = ("asan", "tsan")

# A limit of time, in the words of a runner or of a test's own launcher.
_OUT_OF_TIME = re.compile(
    r"\bTimeoutExpired\b|\bTimeoutError\b|did not end within [\d.]+ s|still running, and was killed"
    r"|took [\d.]+ s with a deadline of"
)
# The same in the words of the runtime, or of a wait of a C++ test. A launcher's output may have these words without a
# failure, so they count only in the text of an assertion.
_DEADLINE = re.compile(r"\bwithin [\d.]+ m?s\b|has not returned for|has not come back|std::future_status::ready")
_COULD_NOT_START = re.compile(
    r"Unable to find executable|Address already in use|Text file busy|Resource temporarily unavailable"
    r"|Cannot allocate memory|mpirun was unable to"
)
_CRASH = re.compile(
    r"Sanitizer|runtime error:|\bSIG(?:SEGV|ABRT|BUS|ILL|FPE)\b|\bsignal:? (?:4|6|7|8|11)\b|[Ss]egmentation fault|core dumped"
    r"|terminate called|double free|free\(\): |corrupted|stack smashing|Fatal Python error|Bus error"
)
_WRONG_NUMBER = re.compile(
    r"AssertionError[\s\S]*AssertionError|Mismatched elements|Not equal to|not close|allclose|torch\.equal"
    r"|\bdiffers?\b|\bunequal\b|wrong (?:bits|number|value|sum|result)|\bmass\b"
)


def assertion_of(said: str) -> str:
    """What pytest's report says of the assertion, without the lines of source; other reports whole."""
    lines = [line[4:] for line in said.splitlines() if re.match(r"E {3}|E$", line)]
    return "\n".join(lines) or said


def why_again(failure: Failure) -> str:
    """"" for a test that must not run again, else the reason why it may."""
    everything = "\n".join((*failure.said, failure.output))
    if failure.preset in SANITIZERS or not (failure.program or failure.node) or _CRASH.search(everything):
        return ""
    if re.search(r"Exception|aborted", failure.verdict):
        return ""
    if failure.verdict == "Timeout":  # a test that had failed before the limit is no victim of the limit
        return "" if "[  FAILED  ]" in everything else "a limit of time ended it"
    reasons = [_why(assertion_of(said), _OUT_OF_TIME, _DEADLINE) for said in failure.said if said.strip()]
    if not reasons:  # a launcher of ctest without a report of its own: all that it wrote
        reasons = [_why(failure.output, _OUT_OF_TIME)]
    return reasons[0] if all(reasons) else ""


def _why(said: str, *limits: re.Pattern[str]) -> str:
    if _WRONG_NUMBER.search(said):
        return ""
    if any(limit.search(said) for limit in limits):
        return "a limit of time ended it"
    return "it could not start" if _COULD_NOT_START.search(said) else ""


@dataclass(frozen=True)
class Runner:
    python: str
    gtest_filter: str = ""

    def passes(self, failure: Failure) -> bool:
        """Runs one test alone; whether something passed and nothing failed or was skipped."""
        try:
            count = self.run(failure)
        except (subprocess.TimeoutExpired, FileNotFoundError):
            return False
        return count.passed > 0 and not count.failures and not count.skipped

    def run(self, test: Failure) -> Count:
        """Runs one test alone and counts. FileNotFoundError: the runner left no report."""
        count = Count()
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            if test.node:
                self._run([self.python, "-m", "pytest", "-q", "-o", "junit_family=xunit1", "--junitxml", report, test.node])
                count_tests.add_pytest(count, report, "0")
            else:
                variables = {"GTEST_OUTPUT": f"xml:{folder}/{test.preset}/"} | ({"GTEST_FILTER": self.gtest_filter} if self.gtest_filter else {})
                self._run(["ctest", "--test-dir", f"build/{test.preset}", "-R", f"^{re.escape(test.program)}$",
                           "--no-tests=error", "--output-junit", report], **variables)
                count_tests.add_ctest(count, report, Path(folder) / test.preset, "0")
        return count

    def _run(self, command: list[str | Path], **variables: str) -> None:
        subprocess.run(command, env={**os.environ, **variables}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       stdin=subprocess.DEVNULL, timeout=LIMIT_S, check=False)


@dataclass(frozen=True)
class Listed:
    date: datetime.date
    name: str
    suspicion: str


def listed(path: Path = FLAKY) -> list[Listed]:
    """The tests of the list: `DATE | NAME | SUSPICION`, a line each. ValueError names a line that is none."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else [], 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split(" | ")]
        try:
            date, name, suspicion = cells
            found.append(Listed(datetime.date.fromisoformat(date), name, suspicion))
        except ValueError:
            raise ValueError(f"{path}:{number}: '{line}', expected YYYY-MM-DD | NAME OF THE TEST | SUSPICION") from None
    return found


def as_failure(name: str) -> Failure:
    """How a test of the list runs: `PRESET: PROGRAM[: TEST]` by ctest, any other name by pytest."""
    if by_ctest := re.match(r"([a-z]+): ([\w.-]+)(?:$|: )", name):
        return Failure(name, preset=by_ctest[1], program=by_ctest[2])
    return Failure(name, node=name)


def try_again(failures: list[Failure], runner: Runner) -> bool:
    """Whether every failed test may run again and passes. Says what it does."""
    if len(failures) > MOST_FAILED:
        print(f"no second try: {len(failures)} tests failed, and a second try is for {MOST_FAILED} at most")
        return False
    for failure in failures:
        if not (reason := why_again(failure)):
            print(f"no second try: {failure.name} did not end by a limit of time")
            return False
        print(f"second try: {failure.name}, because {reason}", flush=True)
        if not runner.passes(failure):
            print(f"failed twice: {failure.name}")
            return False
    return name_flaky([failure.name for failure in failures])


def name_flaky(names: list[str]) -> bool:
    known = {one.name for one in listed()}
    for name in names:
        print(f"flaky: {name}")
        if name not in known:
            print(f"  add to {FLAKY}: {datetime.date.today()} | {name} | WHAT YOU SUSPECT")
    if len(known | set(names)) > MOST_LISTED:
        print(f"{FLAKY} may name {MOST_LISTED} tests, and with these it would name {len(known | set(names))}: fix one of them first")
        return False
    return True


def twenty_times(runner: Runner) -> bool:
    """Every listed test, many times, and its age."""
    good = True
    for one in listed():
        passed = sum(runner.passes(as_failure(one.name)) for _ in range(TIMES))
        age = (datetime.date.today() - one.date).days
        print(f"{one.name}: {passed} of {TIMES} runs passed; listed for {age} days ({one.suspicion})", flush=True)
        if age > DAYS:
            print(f"{one.name}: listed for {age} days, expected at most {DAYS}: fix the test and remove its line from {FLAKY}")
        good = good and passed == TIMES and age <= DAYS
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    count_tests.add_arguments(parser)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--gtest-filter", default="")
    parser.add_argument("--twenty", action="store_true")
    options = parser.parse_args()
    runner = Runner(options.python, options.gtest_filter)
    try:
        good = twenty_times(runner) if options.twenty else try_again(count_tests.count_of(options).failures, runner)
    except ValueError as wrong:
        print(wrong)
        return 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
