#!/usr/bin/env python3
"""Adds up what test runners have reported.

    count_tests.py [--slowest N] [--ctest JUNIT GTEST_FOLDER] ... [--pytest JUNIT] ... [--step NAME STATUS] ...

prints "PASSED FAILED SKIPPED", then one line per failed test and, indented, the end of its output. If a GoogleTest
program has left a report (GTEST_FOLDER/NAME.xml), each of its tests counts. If it has left no readable report, it counts
as one failed test. A step (a check, a build) counts as one test.

With --slowest it prints instead the N tests of the reports that took longest, a line each: seconds and name. A program
of ctest is one test there.
"""

from __future__ import annotations

import argparse
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

LINES_SAID = 20


@dataclass
class Count:
    passed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, name: str, outcome: str, said: str = "") -> None:
        if outcome == "failed":
            last = said.strip().splitlines()[-LINES_SAID:]
            self.failures.append("\n".join([name, *(f"      {line}" for line in last)]))
        elif outcome == "skipped":
            self.skipped += 1
        else:
            self.passed += 1


def cases(report: Path) -> Iterator[tuple[str, ElementTree.Element]]:
    """Name and element of each test of a JUnit report."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        owner = case.get("classname", "")
        yield (f"{owner}.{case.get('name')}" if owner else case.get("name", "?")), case


def outcome_of(case: ElementTree.Element) -> str:
    """passed, skipped or failed, in the words of ctest, pytest and GoogleTest."""
    if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
        return "failed"
    skipped = case.find("skipped")
    # A program that ctest could not start is a failure.
    if skipped is not None and skipped.get("message", "").startswith("Unable to"):
        return "failed"
    if skipped is not None or case.get("status") in ("disabled", "notrun") or case.get("result") == "skipped":
        return "skipped"
    return "passed"


def said_by(case: ElementTree.Element) -> str:
    """The text of a failed test: its failures, or its output if they are empty."""
    failures = [*case.iter("failure"), *case.iter("error")]
    said = "\n".join(one.text or one.get("message", "") for one in failures)
    return said.strip() or "\n".join(one.text or "" for one in case.iter("system-out"))


def add_gtest(count: Count, report: Path) -> bool:
    """Adds the tests of one program, under the name of the folder (the preset) too; whether any failed."""
    any_failed = False
    for name, case in cases(report):
        outcome = outcome_of(case)
        any_failed |= outcome == "failed"
        count.add(f"{report.parent.name}: {report.stem}: {name}", outcome, said_by(case))
    return any_failed


def add_ctest(count: Count, report: Path, folder: Path) -> None:
    for _, case in cases(report):
        name, outcome, said = case.get("name", "?"), outcome_of(case), said_by(case)
        program = folder / f"{name}.xml"
        if not program.exists():
            count.add(f"{folder.name}: {name}", outcome, said)
            continue
        try:
            any_failed = add_gtest(count, program)
        except ElementTree.ParseError:
            count.add(f"{folder.name}: {name}: its report cannot be read", "failed", said)
            continue
        if outcome == "failed" and not any_failed:
            count.add(f"{folder.name}: {name}: failed after its tests had passed", "failed", said)


def seconds_of(case: ElementTree.Element) -> float:
    return float(case.get("time") or 0)


def slowest(reports: list[tuple[str, Path]], n: int) -> list[str]:
    """The n cases that took longest, as lines; reports with the word that stands before the names of theirs."""
    timed = [(seconds_of(case), f"{prefix}{name}") for prefix, report in reports for name, case in cases(report)]
    return [f"{seconds:6.0f} s  {name}" for seconds, name in sorted(timed, reverse=True)[:n]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ctest", nargs=2, action="append", default=[], type=Path, metavar=("JUNIT", "GTEST_FOLDER"))
    parser.add_argument("--pytest", action="append", default=[], type=Path, metavar="JUNIT")
    parser.add_argument("--step", nargs=2, action="append", default=[], metavar=("NAME", "STATUS"))
    parser.add_argument("--slowest", type=int, metavar="N")
    options = parser.parse_args()
    if options.slowest is not None:
        reports = [(f"{folder.name}: ", report) for report, folder in options.ctest]
        print("\n".join(slowest(reports + [("", report) for report in options.pytest], options.slowest)))
        return 0
    count = Count()
    for report, folder in options.ctest:
        add_ctest(count, report, folder)
    for report in options.pytest:
        for name, case in cases(report):
            count.add(name, outcome_of(case), said_by(case))
    for name, status in options.step:
        count.add(name, "passed" if status == "0" else "failed")
    print(count.passed, len(count.failures), count.skipped)
    print("\n".join(count.failures), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
