"""What clang finds wrong with locks, and what is refused before it looks."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_locks as ci  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
COUNTER = """#include "core/base/mutex.hpp"
namespace penstock {
class Counter {
 public:
  void add() { %s }
  void wait() { %s }

 private:
  void count() PENSTOCK_REQUIRES(mutex_) { ++n_; changed_.notify_all(); }
  Mutex mutex_;
  Condition changed_;
  int n_ PENSTOCK_GUARDED_BY(mutex_) = 0;
};
}  // namespace penstock
"""
WAIT = "Lock lock(mutex_); changed_.wait(mutex_, [this]() PENSTOCK_REQUIRES(mutex_) { return n_ != 0; });"

needs_clang = pytest.mark.skipif(shutil.which("clang++") is None, reason="clang++ is not on this machine")


def said_of(tmp_path: Path, text: str) -> str:
    source = tmp_path / "counter.cpp"
    source.write_text(text)
    return "\n".join(ci.parse("clang++", ROOT, [str(source)]))


@needs_clang
def test_a_guarded_member_under_its_lock_is_fine(tmp_path: Path) -> None:
    assert said_of(tmp_path, COUNTER % ("const Lock lock(mutex_); count();", WAIT)) == ""


@needs_clang
@pytest.mark.parametrize(
    ("add", "wait", "says"),
    [
        ("++n_;", WAIT, "requires holding mutex 'mutex_'"),
        ("count();", WAIT, "calling function 'count' requires holding mutex 'mutex_'"),
        ("Lock lock(mutex_); lock.unlock(); ++n_;", WAIT, "requires holding mutex 'mutex_'"),
        ("mutex_.lock(); ++n_;", WAIT, "still held at the end of function"),
        ("Lock lock(mutex_); Lock twice(mutex_);", WAIT, "already held"),
        ("", "changed_.wait(mutex_);", "calling function 'wait' requires holding mutex 'mutex_'"),
        ("", "Lock lock(mutex_); changed_.wait(mutex_, [this] { return n_ != 0; });", "requires holding mutex 'mutex_'"),
    ],
)
def test_what_holds_no_lock_or_too_many_is_named(tmp_path: Path, add: str, wait: str, says: str) -> None:
    assert says in said_of(tmp_path, COUNTER % (add, wait))


def test_standard_locks_are_refused_in_the_core() -> None:
    (said,) = ci.standard_locks({"core/a.cpp": "// std::mutex\nconst std::lock_guard lock(mutex_);\n"})
    assert said.startswith("core/a.cpp:2: std::lock_guard: expected a Mutex")


def test_tests_and_what_runs_on_devices_are_not_looked_at() -> None:
    assert ci.is_checked("core/comm/channel.cpp")
    for path in ("core/comm/group_test.cpp", "core/control/testing.hpp", "core/device/cuda/device_cuda.cpp", "tools/a.cpp"):
        assert not ci.is_checked(path)


def test_files_that_stay_with_the_standard_are_there() -> None:
    for path in ci.STANDARD:
        assert (ROOT / path).is_file(), path


def test_a_batch_is_of_one_folder() -> None:
    sources = [f"core/a/{number}.cpp" for number in range(ci.BATCH + 1)] + ["core/b/0.cpp"]
    assert [len(batch) for batch in ci.batches(sources)] == [ci.BATCH, 1, 1]


@needs_clang
def test_the_core_holds_its_locks_where_it_is_quick_to_see() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/ci/check_locks.py", "core/base/workers.cpp"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
