#!/usr/bin/env python3
"""Compares the time that the programs of ctest took together with the last kept verdict of this machine.

    ratchet.py --variables TEXT [--python PYTHON] [--gtest-filter FILTER] [arguments of count_tests.py]

More than 5 % is a failure, unless docs/testing.md has a new row in its table "date, sum of ctest" that gives the reason.
A slower day of the machine makes all programs slower, so the median of their ratios is taken out first. Other work beside
a program makes it slower too, so the programs that grew most run once more, alone. The status is 1 for a failure. Without a verdict for this machine there is nothing to compare, and the status is 0.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping

import count_tests
import verdict
from count_tests import Failure
from second_try import Runner

MOST = 1.05
AGAIN = 5  # so many programs run once more
LEAST_S = 0.5  # times below it say nothing about the speed of the machine
FEWEST = 20  # nor do fewer programs


def slower_machine(now: Mapping[str, float], before: Mapping[str, float]) -> float:
    """How much slower the machine is than before: the median over the programs of both runs."""
    ratios = [now[name] / seconds for name, seconds in before.items() if seconds >= LEAST_S and name in now]
    return max(1.0, statistics.median(ratios)) if len(ratios) >= FEWEST else 1.0


def most_grown(now: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """The programs that grew most, and by how many seconds."""
    slower = slower_machine(now, before)
    growth = {name: seconds / slower - before.get(name, 0.0) for name, seconds in now.items()}
    return dict(sorted(growth.items(), key=lambda pair: -pair[1])[:AGAIN])


def compare(now: Mapping[str, float], before: Mapping[str, float]) -> tuple[float, str]:
    """The growth of the sum, and a text about the programs that grew most."""
    slower = slower_machine(now, before)
    sums = sum(now.values()) / slower, sum(before.values())
    text = f"the programs of ctest took {sums[0]:.0f} s, and {sums[1]:.0f} s in the kept verdict"
    if slower > 1.0:
        text += f" (times divided by {slower:.2f}, because all programs were slower by so much)"
    return sums[0] / sums[1], f"{text}; most grew " + ", ".join(f"{name} by {more:.1f} s" for name, more in most_grown(now, before).items())


def alone(runner: Runner, name: str) -> float:
    """The seconds of one program with nothing beside it."""
    return runner.run(Failure(name, preset="release", program=name)).seconds.get(name, float("inf"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    count_tests.add_arguments(parser)
    parser.add_argument("--variables", default="")
    parser.add_argument("--python", default=".venv/bin/python")
    parser.add_argument("--gtest-filter", default="")
    options = parser.parse_args()
    parts = verdict.hashed(verdict.machine(options.python, options.variables))
    same = [one for one in verdict.kept() if one.get("seconds") and {**one["parts"], "code": ""} == {**parts, "code": ""}]
    now = count_tests.count_of(options).seconds
    if not same or not now:
        print(f"{sum(now.values()):.0f} s, and no verdict of this machine to compare with")
        return 0
    before = same[0]["seconds"]
    ratio, text = compare(now, before)
    if ratio > MOST:
        runner = Runner(options.python, options.gtest_filter)
        now |= {name: min(now[name], alone(runner, name)) for name in most_grown(now, before)}
        ratio, text = compare(now, before)
    print(f"{text}. That is {ratio:.2f} times as much")
    if ratio <= MOST:
        return 0
    if set(verdict.reasons()) - set(same[0].get("reasons", [])):
        print(f"{verdict.PAGE} gives the reason in a new row")
        return 0
    print(f"at most {MOST} is allowed: make a test quicker, or add a row with the reason to the table 'date, sum of ctest' of {verdict.PAGE}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
