#!/usr/bin/env python3
"""Adds up what test runners have reported.

    count_tests.py [--slowest N] [--ctest JUNIT GTEST_FOLDER STATUS] ... [--pytest JUNIT STATUS] ... [--step NAME STATUS] ...

prints "PASSED FAILED SKIPPED", then one line per failed test and, indented, the end of its output. If a GoogleTest
program has left a report (GTEST_FOLDER/NAME.xml), each of its tests counts. If it has left no readable report, it counts
as one failed test. A step (a check, a build) counts as one test. STATUS is the exit status of the runner: a runner that
failed, although no test in its report did, counts as one failed test.

With --slowest it prints instead the N tests of the reports that took longest, a line each: seconds and name. A program
of ctest is one test there.
"""

from __future__ import annotations

import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

LINES_SAID = 20


@dataclass(frozen=True)
class Failure:
    """A failed test. `preset` and `program` tell how ctest runs it again, `node` how pytest does; a step has none of
    them. `said` is one text for each thing that failed in it, `output` is all that the test wrote, `verdict` is ctest's
    word for the end of a program ("Timeout", "Failed", "Exception: SegFault")."""

    name: str
    said: tuple[str, ...] = ()
    output: str = ""
    preset: str = ""
    program: str = ""
    node: str = ""
    verdict: str = ""

    def text(self) -> str:
        """Its name, and indented the end of what it said."""
        last = ("\n".join(self.said).strip() or self.output.strip()).splitlines()[-LINES_SAID:]
        return "\n".join([self.name, *(f"      {line}" for line in last)])


@dataclass
class Count:
    passed: int = 0
    skipped: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)  # of the programs of ctest in the release

    def add(self, name: str, outcome: str, case: ElementTree.Element | None = None, **again: str) -> None:
        if outcome == "failed":
            said, output = said_by(case)
            self.failures.append(Failure(name, said, output, **again))
        elif outcome == "skipped":
            self.skipped.append(name)
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


def said_by(case: ElementTree.Element | None) -> tuple[tuple[str, ...], str]:
    """What failed, a text each with its first line from the runner, and the output of the test."""
    if case is None:
        return (), ""
    failed = [*case.iter("failure"), *case.iter("error")]
    said = tuple("\n".join(filter(None, (one.get("message", ""), one.text or ""))) for one in failed)
    return said, "\n".join(one.text or "" for one in (*case.iter("system-out"), *case.iter("system-err")))


def add_gtest(count: Count, report: Path) -> bool:
    """Adds the tests of one program, under the name of the folder (the preset) too; whether any failed."""
    any_failed = False
    for name, case in cases(report):
        outcome = outcome_of(case)
        any_failed |= outcome == "failed"
        preset, program = report.parent.name, report.stem
        count.add(f"{preset}: {program}: {name}", outcome, case, preset=preset, program=program)
    return any_failed


def ctest_verdicts(report: Path) -> dict[str, str]:
    """Programs and ctest's word for their end, from the log that ctest writes beside its report (NAME.log). The report
    does not tell a limit of time from a crash."""
    log = report.with_suffix(".log")
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = re.findall(r"^ *\d+/\d+ Test +#\d+: (\S+) \.*(.*?) +[\d.]+ sec", text, re.MULTILINE)
    return {name: verdict.replace("*", "").strip(" :") for name, verdict in lines if "***" in verdict}


def add_ctest(count: Count, report: Path, folder: Path, status: str) -> None:
    before = len(count.failures)
    verdicts = ctest_verdicts(report)
    for _, case in cases(report):
        name, outcome = case.get("name", "?"), outcome_of(case)
        if folder.name == "release":
            count.seconds[name] = seconds_of(case)
        again = {"preset": folder.name, "program": name, "verdict": verdicts.get(name, "")}
        program = folder / f"{name}.xml"
        if not program.exists():
            count.add(f"{folder.name}: {name}", outcome, case, **again)
            continue
        try:
            any_failed = add_gtest(count, program)
        except ElementTree.ParseError:
            count.add(f"{folder.name}: {name}: its report cannot be read", "failed", case)
            continue
        if outcome == "failed" and not any_failed:
            count.add(f"{folder.name}: {name}: failed after its tests had passed", "failed", case, **again)
    if status != "0" and len(count.failures) == before:
        count.add(f"{folder.name}: ctest ended with status {status}, and no test of {report.name} failed", "failed")


def node_of(case: ElementTree.Element) -> str:
    """The name by which pytest runs this test: FILE::CLASS::NAME. Reports have the file in pytest's form xunit1."""
    file, name = case.get("file", ""), case.get("name", "?")
    if not file:
        return ""
    module = file.removesuffix(".py").replace("/", ".")
    classes = case.get("classname", "").removeprefix(module).strip(".")
    return "::".join([file, *filter(None, classes.split(".")), name])


def add_pytest(count: Count, report: Path, status: str) -> None:
    before = len(count.failures)
    for name, case in cases(report):
        node = node_of(case)
        count.add(node or name, outcome_of(case), case, node=node)
    if status != "0" and len(count.failures) == before:
        count.add(f"pytest ended with status {status}, and no test of {report.name} failed", "failed")


def seconds_of(case: ElementTree.Element) -> float:
    return float(case.get("time") or 0)


def slowest(reports: list[tuple[str, Path]], n: int) -> list[str]:
    """The n cases that took longest, as lines; reports with the word that stands before the names of theirs."""
    timed = [(seconds_of(case), f"{prefix}{name}") for prefix, report in reports for name, case in cases(report)]
    return [f"{seconds:6.0f} s  {name}" for seconds, name in sorted(timed, reverse=True)[:n]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that say what has run."""
    parser.add_argument("--ctest", nargs=3, action="append", default=[], metavar=("JUNIT", "GTEST_FOLDER", "STATUS"))
    parser.add_argument("--pytest", nargs=2, action="append", default=[], metavar=("JUNIT", "STATUS"))
    parser.add_argument("--step", nargs=2, action="append", default=[], metavar=("NAME", "STATUS"))


def count_of(options: argparse.Namespace) -> Count:
    count = Count()
    for report, folder, status in options.ctest:
        add_ctest(count, Path(report), Path(folder), status)
    for report, status in options.pytest:
        add_pytest(count, Path(report), status)
    for name, status in options.step:
        count.add(name, "passed" if status == "0" else "failed")
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    parser.add_argument("--slowest", type=int, metavar="N")
    options = parser.parse_args()
    if options.slowest is not None:
        reports = [(f"{Path(folder).name}: ", Path(report)) for report, folder, _ in options.ctest]
        print("\n".join(slowest(reports + [("", Path(report)) for report, _ in options.pytest], options.slowest)))
        return 0
    count = count_of(options)
    print(count.passed, len(count.failures), len(count.skipped))
    print("\n".join(failure.text() for failure in count.failures), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
