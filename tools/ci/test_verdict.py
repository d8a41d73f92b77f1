"""A kept verdict holds for the same code on the same machine: one byte more, and tools/test --all runs everything.

The small checkout of these tests has the real tools/test. Its tools/setup does nothing, its build fails at once, and its
Python runs tools/ci alone: no pytest, and the list of packages is one line.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import ratchet
import verdict
from count_tests import Count, Failure

ROOT = Path(__file__).resolve().parents[2]
WHOLE, PAGES = "building the tests", "pytest tests/pages"
FILES = {
    "core/step.cpp": "int step;\n", "core/step.hpp": "\n", "kernels/sum.cu": "\n", "CMakeLists.txt": "\n", "conf/topk.toml": "\n",
    "tools/bench": "#!/bin/bash\n", "tests/page.md": "a case\n", "tests/data.bin": "\0", "README.md": "a page\n",
    "docs/testing.md": "a page\n", "plugins/topk/README.md": "a page\n", ".gitignore": "/.venv\n/build/\n__pycache__/\n",
}

PYTHON = """#!/bin/bash
case "$*" in
  *" pytest "*) exit 1 ;;
  *" freeze "*) echo {packages} ;;
  *) exec {python} "$@" ;;
esac
"""


class Checkout:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {
            "PATH": f"{root / '.venv'}:{os.environ['PATH']}", "HOME": str(root), "XDG_CACHE_HOME": str(root.parent / "cache"),
            "GIT_CONFIG_GLOBAL": "/dev/null", "PYTHONDONTWRITEBYTECODE": "1",
        }

    def git(self, *words: str) -> None:
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e@x", *words], cwd=self.root, env=self.environment, check=True,
                       capture_output=True)

    def test(self, *arguments: str, before: tuple[str, ...] = (), **variables: str) -> str:
        """What `tools/test --all` says."""
        ran = subprocess.run([*before, "tools/test", "--all", *arguments], cwd=self.root, env=self.environment | variables,
                             capture_output=True, text=True, timeout=120, check=False)
        return ran.stdout

    def keep(self) -> None:
        """Keeps a verdict for the checkout as it stands, as after a whole green run."""
        ran = self.verdict("find")
        kept = self.verdict("keep", "--digest", ran.stdout.splitlines()[0])
        assert kept.returncode == 0, kept.stdout + kept.stderr

    def verdict(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([".venv/bin/python", "tools/ci/verdict.py", *arguments, "--step", "all", "0"], cwd=self.root,
                              env=self.environment, capture_output=True, text=True, check=False)


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root = tmp_path / "checkout"
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    shutil.copytree(ROOT / "tools/ci", root / "tools/ci", ignore=shutil.ignore_patterns("__pycache__", "test_*"))
    for file in ("test", "test_steps.sh", "steps.sh"):
        shutil.copy(ROOT / "tools" / file, root / "tools" / file)
    executable(root / "tools/setup", "#!/bin/bash\n")
    executable(root / ".venv/bin/python", PYTHON.format(python=sys.executable, packages="torch==2"))
    executable(root / ".venv/cmake", "#!/bin/bash\nexit 1\n")
    one = Checkout(root)
    one.git("init", "-q")
    one.git("add", "-A")
    one.git("commit", "-q", "-m", "all")
    return one


def test_with_a_kept_verdict_only_the_checks_of_pages_run_and_the_closing_lines_say_so(checkout: Checkout) -> None:
    assert WHOLE in checkout.test()
    checkout.keep()
    said = checkout.test()
    assert WHOLE not in said and PAGES in said
    closing = said[said.index("the ten slowest tests"):]
    assert "everything but pages has passed already: tools/test --all of " in closing
    assert WHOLE in checkout.test("--fresh")


def test_a_byte_of_prose_runs_the_checks_of_pages(checkout: Checkout) -> None:
    checkout.keep()
    for page in filter(verdict.is_prose, FILES):
        (checkout.root / page).write_text("another page\n")
    checkout.git("commit", "-q", "-a", "-m", "prose")
    assert WHOLE not in checkout.test()


def test_a_byte_of_any_other_file_runs_everything(checkout: Checkout) -> None:
    checkout.keep()
    for path in [path for path in FILES if not verdict.is_prose(path)] + ["tools/test", "tools/setup", "tools/ci/verdict.py"]:
        file = checkout.root / path
        before = file.read_bytes()
        file.write_bytes(before + b"\n")
        said = checkout.test()
        assert WHOLE in said and "these have changed: code" in said, path
        file.write_bytes(before)
    assert WHOLE not in checkout.test()


@pytest.mark.parametrize("change", [
    lambda root: (root / "core/new.cpp").write_text(""),  # not tracked yet, but a build would find it
    lambda root: (root / "core/step.cpp").unlink(),
    lambda root: (root / "core/step.cpp").rename(root / "core/steps.cpp"),
    lambda root: (root / "core/step.cpp").chmod(0o755),
])
def test_a_file_that_comes_goes_or_gets_another_name_or_mode_runs_everything(checkout: Checkout, change: Callable[[Path], object]) -> None:
    checkout.keep()
    change(checkout.root)
    assert WHOLE in checkout.test()


def test_a_variable_that_tests_read_runs_everything(checkout: Checkout) -> None:
    checkout.keep()
    for name in ("PENSTOCK_CONFIG", "GTEST_FILTER", "TEST_LONG", "OMP_NUM_THREADS", "ASAN_OPTIONS"):
        said = checkout.test(**{name: "1"})
        assert WHOLE in said and "these have changed: variables" in said, name
    assert WHOLE not in checkout.test(EDITOR="1")


def test_other_packages_of_the_system_or_of_python_run_everything(checkout: Checkout) -> None:
    checkout.keep()
    executable(checkout.root / ".venv/dpkg-query", "#!/bin/bash\necho libucx0 2\n")
    assert "these have changed: packages" in checkout.test()
    (checkout.root / ".venv/dpkg-query").unlink()
    executable(checkout.root / ".venv/bin/python", PYTHON.format(python=sys.executable, packages="torch==3"))
    assert "these have changed: python environment" in checkout.test()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one core")
def test_another_number_of_cores_or_another_kernel_runs_everything(checkout: Checkout) -> None:
    checkout.keep()
    assert "these have changed: cores" in checkout.test(before=("taskset", "-c", str(min(os.sched_getaffinity(0)))))
    assert "these have changed: kernel" in checkout.test(before=("setarch", "--uname-2.6"))


@pytest.mark.parametrize("fact", ["packages", "processor", "kernel", "cores", "user", "devices", "python environment", "variables"])
def test_a_verdict_belongs_to_each_fact_of_the_machine(fact: str) -> None:
    facts = verdict.machine(sys.executable, "")
    assert set(facts) == {"packages", "processor", "kernel", "cores", "user", "devices", "python environment", "variables"}
    changed = {**facts, fact: facts[fact] + "x"}
    assert verdict.digest_of(verdict.hashed(facts)) != verdict.digest_of(verdict.hashed(changed))


def test_a_processor_is_its_model_and_its_flags() -> None:
    text = "processor : 0\nmodel name : A\ncpu MHz : 1000\nflags : sse avx\n\nprocessor : 1\nmodel name : A\n"
    assert verdict.processor(text) == verdict.processor(text.replace("1000", "2000")) == "A\nsse avx"


PARTS = {"code": "c", "kernel": "k"}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "penstock/verdicts"


@pytest.mark.parametrize(("count", "digest", "said"), [
    (Count(1, [], [Failure("a")]), "", "a test failed"),
    (Count(1, ["suite: not known"]), "", "skipped, and not in tests/skipped.txt: suite: not known"),
    (Count(1), "other", "changed while the tests ran"),
])
def test_a_run_that_failed_skipped_more_or_saw_a_change_is_not_kept(
    store: Path, capsys: pytest.CaptureFixture[str], count: Count, digest: str, said: str
) -> None:
    assert not verdict.keep(PARTS, digest or verdict.digest_of(PARTS), count)
    assert said in capsys.readouterr().out and not store.exists()


def test_only_a_run_of_a_fresh_clone_without_a_second_try_is_kept() -> None:
    script = (ROOT / "tools/test").read_text()
    assert '[[ $is_clone == no || -z $digest ]] || on_green=' in script
    assert "$failed -eq 0 && $tried_twice == no" in (ROOT / "tools/test_steps.sh").read_text()


def test_a_verdict_that_cannot_be_read_is_none(store: Path) -> None:
    store.mkdir(parents=True)
    (store / "torn.json").write_text('{"date"')
    (store / "empty.json").write_text("[]")
    assert verdict.kept() == [] and not verdict.find(PARTS)
    (store / "whole.json").write_text(json.dumps({"date": "2026", "parts": PARTS, "commit": "c", "passed": 1, "skipped": []}))
    assert verdict.find(PARTS)


def test_a_pattern_of_the_list_of_skips_takes_brackets_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "SKIPPED", tmp_path / "skipped.txt")
    (tmp_path / "skipped.txt").write_text("# no device\nt.py::test_x[cuda-*]\n")
    assert verdict.skips_known(["t.py::test_x[cuda-1]", "t.py::test_x[cpu]"]) == ["t.py::test_x[cpu]"]


TIMES = {f"program_{i}": 10.0 for i in range(30)}


def test_a_slower_machine_is_no_growth_and_a_slower_program_is() -> None:
    assert ratchet.compare({name: 1.3 * seconds for name, seconds in TIMES.items()}, TIMES)[0] == pytest.approx(1.0)
    grown, said = ratchet.compare({**TIMES, "program_3": 26.0}, TIMES)
    assert grown > ratchet.MOST and "most grew program_3 by 16.0 s" in said


def test_a_new_program_counts_and_a_faster_machine_gives_nothing_away() -> None:
    assert ratchet.compare({**TIMES, "new": 30.0}, TIMES)[0] == pytest.approx(1.1)
    assert ratchet.compare({name: 0.5 * seconds for name, seconds in TIMES.items()}, TIMES)[0] == pytest.approx(0.5)


def test_a_row_of_the_page_gives_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "PAGE", tmp_path / "testing.md")
    (tmp_path / "testing.md").write_text("\n| date | sum of ctest | reason |\n|---|---|---|\n| 2026-11-28 | 700 s | more |\n\n| 2026 |\n")
    assert verdict.reasons() == ["| 2026-11-28 | 700 s | more |"]


def test_a_program_that_was_slow_beside_other_work_runs_once_more_alone(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = verdict.hashed(verdict.machine(sys.executable, ""))
    verdict.keep({"code": "", **parts}, verdict.digest_of({"code": "", **parts}), Count(1, seconds=dict(TIMES)))
    folder = tmp_path / "build/release"
    folder.mkdir(parents=True)
    (folder / "CTestTestfile.cmake").write_text("add_test(program_3 true)\n")
    cases = "".join(f'<testcase name="{name}" time="{26 if name == "program_3" else 10}"/>' for name in TIMES)
    (tmp_path / "ctest.xml").write_text(f"<testsuite>{cases}</testsuite>")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(verdict, "PAGE", ROOT / "docs/testing.md")
    monkeypatch.setattr(ratchet, "AGAIN", 1)
    monkeypatch.setattr(sys, "argv", ["ratchet.py", "--python", sys.executable, "--ctest", "ctest.xml", "release", "0"])
    assert ratchet.main() == 0
    assert "That is 0.97 times as much" in capsys.readouterr().out
    monkeypatch.setattr(ratchet, "alone", lambda runner, name: 26.0)
    assert ratchet.main() == 1
    assert "make a test quicker, or add a row with the reason" in capsys.readouterr().out
