"""A test that a limit of time ended runs once more; a wrong number, a crash and a race never do.

The small checkout of these tests has the real tools/test_steps.sh, a folder of ctest and one of pytest.
"""

from __future__ import annotations

import datetime
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import second_try
from count_tests import Failure

ROOT = Path(__file__).resolve().parents[2]

# Runs the tests of the checkout like tools/test: ctest of a preset, then pytest.
SCRIPT = """
source tools/test_steps.sh
cd "$repository"
python={python}
quick_filter='-*SixteenMillion*'
tests_begin test 2
ctest_run {preset} "ctest"
pytest_run suite
finish
"""

# A program that is too late in its first run only.
LATE_ONCE = 'if [ -e {0} ]; then exit 0; fi; touch {0}; exec sleep 60'


@pytest.fixture
def checkout(tmp_path: Path):
    """tools/ci and tools/test_steps.sh, a suite of pytest that passes, and a way to add programs to ctest."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "suite").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    shutil.copytree(ROOT / "tools/ci", tmp_path / "tools/ci")
    for file in ("test_steps.sh", "steps.sh"):
        shutil.copy(ROOT / "tools" / file, tmp_path / "tools" / file)
    (tmp_path / "suite/test_it.py").write_text("def test_that_passes():\n    pass\n")
    return Checkout(tmp_path)


class Checkout:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.programs: list[str] = ["add_test(fine true)"]

    def program(self, name: str, *command: str, limit_s: int = 3) -> None:
        words = " ".join(f'"{word}"' for word in command)
        self.programs += [f"add_test({name} {words})", f"set_tests_properties({name} PROPERTIES TIMEOUT {limit_s})"]

    def run(self, preset: str = "release") -> subprocess.CompletedProcess[str]:
        build = self.root / "build" / preset
        build.mkdir(parents=True, exist_ok=True)
        (build / "CTestTestfile.cmake").write_text("\n".join(self.programs) + "\n")
        script = SCRIPT.format(preset=preset, python=sys.executable)
        return subprocess.run(["bash", "-c", script.replace("source tools", f"source {self.root}/tools")], cwd=self.root,
                              capture_output=True, text=True, timeout=120, check=False)


def last_lines(ran: subprocess.CompletedProcess[str], count: int) -> list[str]:
    return ran.stdout.splitlines()[-count:]


def test_a_program_that_is_too_late_once_passes_and_is_named_with_its_line_for_the_list(checkout: Checkout, tmp_path: Path) -> None:
    checkout.program("late", "sh", "-c", LATE_ONCE.format(tmp_path / "late"))
    ran = checkout.run()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert last_lines(ran, 3) == [
        "flaky: release: late",
        f"  add to tests/flaky.txt: {datetime.date.today()} | release: late | WHAT YOU SUSPECT",
        "3 passed, 0 failed",
    ]


def test_a_test_of_python_whose_ranks_did_not_end_passes_in_its_second_try(checkout: Checkout, tmp_path: Path) -> None:
    (checkout.root / "suite/test_late.py").write_text(f"""
import pathlib, subprocess
class TestRanks:
    def test_late(self):
        mark = pathlib.Path({str(tmp_path / "mark")!r})
        if not mark.exists():
            mark.touch()
            subprocess.run(["sleep", "5"], timeout=0.1)
""")
    ran = checkout.run()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "flaky: suite/test_late.py::TestRanks::test_late" in ran.stdout


def test_a_program_that_is_too_late_twice_fails(checkout: Checkout) -> None:
    checkout.program("late", "sleep", "60")
    ran = checkout.run()
    assert ran.returncode == 1
    assert last_lines(ran, 2) == ["failed twice: release: late", "2 passed, 1 failed"]


@pytest.mark.parametrize(("name", "command"), [
    ("wrong number", ["sh", "-c", "echo expected 1, got 2; exit 1"]),
    ("crash", ["sh", "-c", "kill -SEGV $$$$"]),
    ("wrong number before the limit", ["sh", "-c", "echo '[  FAILED  ] Sums.AreEqual'; exec sleep 60"]),
    ("rank that crashed before the limit", ["sh", "-c", "echo rank 1 ended by signal 11; exec sleep 60"]),
])
def test_nothing_else_gets_a_second_try(checkout: Checkout, name: str, command: list[str]) -> None:
    checkout.program("broken", *command)
    ran = checkout.run()
    assert ran.returncode == 1, name
    assert last_lines(ran, 2) == [
        "no second try: release: broken did not end by a limit of time", "2 passed, 1 failed"
    ], ran.stdout


def test_a_wrong_number_of_python_gets_no_second_try_although_other_ranks_ran_out_of_time(checkout: Checkout) -> None:
    (checkout.root / "suite/test_wrong.py").write_text(
        "def test_wrong():\n"
        "    assert False, 'AssertionError: 1.5 is not 2\\nranks.py on 2 ranks did not end within 180 s'\n"
    )
    assert "no second try: suite/test_wrong.py::test_wrong" in checkout.run().stdout


def test_a_late_program_under_a_sanitizer_gets_no_second_try(checkout: Checkout, tmp_path: Path) -> None:
    checkout.program("late", "sh", "-c", LATE_ONCE.format(tmp_path / "late"))
    assert last_lines(checkout.run("tsan"), 2)[0] == "no second try: tsan: late did not end by a limit of time"


RACE = """
#include <thread>
int count = 0;
int main() {
  std::thread one([] { for (int i = 0; i < 100000; i++) count++; });
  for (int i = 0; i < 100000; i++) count++;
  one.join();
}
"""


def test_a_race_fails_at_once(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "race.cpp").write_text(RACE)
    subprocess.run(["c++", "-fsanitize=thread", "-g1", tmp_path / "race.cpp", "-o", tmp_path / "race"], check=True)
    checkout.program("race", "setarch", "-R", str(tmp_path / "race"), limit_s=60)
    ran = checkout.run("tsan")
    assert ran.returncode == 1 and "data race" in ran.stdout
    assert last_lines(ran, 2)[0] == "no second try: tsan: race did not end by a limit of time"


def test_three_failures_are_no_accident(checkout: Checkout, tmp_path: Path) -> None:
    for name in ("first", "second", "third"):
        checkout.program(name, "sh", "-c", LATE_ONCE.format(tmp_path / name))
    assert last_lines(checkout.run(), 2)[0] == "no second try: 3 tests failed, and a second try is for 2 at most"


def listed(checkout: Checkout, names: list[str], date: str = "2026-11-20") -> None:
    (checkout.root / "tests/flaky.txt").write_text("# a list\n" + "".join(f"{date} | {name} | a slow disk\n" for name in names))


def test_the_sixth_flaky_test_fails(checkout: Checkout, tmp_path: Path) -> None:
    listed(checkout, [f"release: program_{i}" for i in range(5)])
    checkout.program("late", "sh", "-c", LATE_ONCE.format(tmp_path / "late"))
    ran = checkout.run()
    assert ran.returncode == 1
    assert "tests/flaky.txt may name 5 tests, and with these it would name 6: fix one of them first" in ran.stdout


def test_a_test_of_the_list_needs_no_line_more(checkout: Checkout, tmp_path: Path) -> None:
    listed(checkout, ["release: late"])
    checkout.program("late", "sh", "-c", LATE_ONCE.format(tmp_path / "late"))
    assert last_lines(checkout.run(), 2) == ["flaky: release: late", "3 passed, 0 failed"]


def test_a_runner_that_fails_although_its_tests_passed_is_a_failure(checkout: Checkout) -> None:
    (checkout.root / "suite/conftest.py").write_text("def pytest_sessionfinish(session):\n    session.exitstatus = 3\n")
    ran = checkout.run()
    assert ran.returncode == 1 and "pytest ended with status 3, and no test of pytest-suite.xml failed" in ran.stdout


@pytest.mark.parametrize("line", ["2026-11-20 | name", "yesterday | name | why", "| | |"])
def test_a_line_of_the_list_that_cannot_be_read_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "flaky.txt"
    file.write_text(f"# a list\n\n{line}\n")
    with pytest.raises(ValueError, match=r"flaky.txt:3: .*expected YYYY-MM-DD \| NAME OF THE TEST \| SUSPICION"):
        second_try.listed(file)


def test_a_program_of_the_list_and_a_test_of_pytest_are_told_apart() -> None:
    assert second_try.as_failure("release: core_set_test: Step.Ends").program == "core_set_test"
    assert second_try.as_failure("suite/test_it.py::test_x[a: b]").node == "suite/test_it.py::test_x[a: b]"


def test_nightly_runs_each_of_the_list_twenty_times_and_refuses_a_line_of_fifteen_days(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(checkout.root)
    runner = second_try.Runner(sys.executable)
    monkeypatch.setattr(second_try, "TIMES", 2)
    for days, good in ((14, True), (15, False)):
        listed(checkout, ["suite/test_it.py::test_that_passes"], str(datetime.date.today() - datetime.timedelta(days)))
        assert second_try.twenty_times(runner) == good
    said = capsys.readouterr().out
    assert "2 of 2 runs passed; listed for 14 days (a slow disk)" in said and "listed for 15 days, expected at most 14" in said


@pytest.mark.parametrize(("failure", "again"), [
    (Failure("g", ("Value of: status.ok()\nrank 1 did not come to 'loss' within 20 s",), program="p"), True),
    (Failure("g", ("first.wait_for(20s) Expected std::future_status::ready",), program="p"), True),
    (Failure("g", ("within 20 s", "Expected equality of these values: 1.5 and 2"), program="p"), False),
    (Failure("g", ("ranks differ; rank 1 did not come within 20 s",), program="p"), False),
    (Failure("f", output="rank 0 error: rank 1 did not come within 5 s", program="p", verdict="Failed"), False),
    (Failure("f", output="silent: took 21.0 s with a deadline of 5 s", program="p", verdict="Failed"), True),
    (Failure("p", ("E   OSError: [Errno 98] Address already in use",), node="n"), True),
    (Failure("p", ("subprocess.run(timeout=3)  # TimeoutExpired\nE   assert 1 == 2",), node="n"), False),
    (Failure("a step",), False),
])
def test_the_text_of_a_failure_decides(failure: Failure, again: bool) -> None:
    assert bool(second_try.why_again(failure)) == again
