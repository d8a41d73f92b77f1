"""tools/mutate: tests of the tests. Changes one line at a time and expects the tests of that place to fail.

The changes stand in tools/mutations/*.toml. Each is made in a copy of the checkout under build/mutate, never in the
checkout itself; the copy's own build runs the tests. A change that no test notices is a failure, and so is one whose
text no longer stands in the file exactly once.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
COPY = REPOSITORY / "build/mutate/source"
BUILD = REPOSITORY / "build/mutate/release"
TEST_LIMIT_S = 120  # a change may make a loop endless: that counts as noticed


@dataclass(frozen=True)
class Mutation:
    """One change: `old` stands once in `file` and becomes `new`; `tests` are the programs that must notice."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    name: str
    verdict: str  # noticed, survived, stale, does not compile
    by: str = ""
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return self.verdict == "noticed"


class BrokenList(ValueError):
    """A list of changes that cannot be read as one; the message names file and entry."""


def load(folder: Path) -> list[Mutation]:
    """All changes of the lists in `folder`, by file name."""
    mutations: list[Mutation] = []
    for path in sorted(folder.glob("*.toml")):
        try:
            entries = tomllib.loads(path.read_text())["mutation"]
        except (tomllib.TOMLDecodeError, KeyError) as error:
            raise BrokenList(f"{path}: expected [[mutation]] tables: {error}") from error
        for number, entry in enumerate(entries, start=1):
            missing = {"name", "file", "old", "new", "tests"} - set(entry)
            if missing or entry["old"] == entry["new"]:
                what = f"lacks {sorted(missing)}" if missing else "changes nothing"
                raise BrokenList(f"{path}: mutation {number} {what}; it needs name, file, old, new, tests")
            mutations.append(Mutation(entry["name"], entry["file"], entry["old"], entry["new"], tuple(entry["tests"])))
    names = [mutation.name for mutation in mutations]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BrokenList(f"names that stand twice: {', '.join(twice)}; each change needs its own")
    return mutations


def _run(command: Sequence[str], timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=COPY, capture_output=True, text=True, timeout=timeout_s, check=False)


def make_copy() -> None:
    """The files that git knows or would take, as they stand now; files that are the same keep their times."""
    COPY.mkdir(parents=True, exist_ok=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, capture_output=True, check=True,
    ).stdout
    names = {name for name in listed.decode().split("\0") if name and (REPOSITORY / name).is_file()}
    for stale in [p for p in COPY.rglob("*") if p.is_file() and str(p.relative_to(COPY)) not in names]:
        stale.unlink()
    for name in names:
        source, target = REPOSITORY / name, COPY / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
            target.chmod(source.stat().st_mode & 0o777)


def build(tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return _run(["ninja", "-C", str(BUILD), *tests])


def failing(tests: Sequence[str]) -> str:
    """The first program that fails, "" if none does."""
    for test in tests:
        command = ["ctest", "--test-dir", str(BUILD), "-R", f"^{test}$", "--no-tests=error", "--timeout", str(TEST_LIMIT_S)]
        if _run(command, 2 * TEST_LIMIT_S).returncode != 0:
            return test
    return ""


def attempt(mutation: Mutation) -> Outcome:
    """Makes the change, builds, tests, and takes it back."""
    start = time.monotonic()
    path = COPY / mutation.file
    before = path.read_text() if path.is_file() else ""
    if before.count(mutation.old) != 1:
        return Outcome(mutation.name, "stale", f"{mutation.file} has its text {before.count(mutation.old)} times, expected once")
    try:
        path.write_text(before.replace(mutation.old, mutation.new))
        built = build(mutation.tests)
        if built.returncode != 0:
            return Outcome(mutation.name, "does not compile", built.stdout[-500:], time.monotonic() - start)
        by = failing(mutation.tests)
    finally:
        path.write_text(before)
    return Outcome(mutation.name, "noticed" if by else "survived", by, time.monotonic() - start)


def prepare(mutations: Sequence[Mutation]) -> None:
    """Copy, configuration, build, and the tests without any change. Errors: SystemExit with what to do."""
    make_copy()
    tests = sorted({test for mutation in mutations for test in mutation.tests})
    configured = _run(["cmake", "--preset", "release", "-B", str(BUILD), "-DPENSTOCK_BENCHMARKS=OFF"])
    if configured.returncode != 0:
        raise SystemExit(f"mutate: the copy in build/mutate does not configure:\n{configured.stderr[-2000:]}")
    built = build(tests)
    if built.returncode != 0:
        raise SystemExit(f"mutate: the unchanged copy does not build:\n{built.stdout[-2000:]}")
    by = failing(tests)
    if by:
        raise SystemExit(f"mutate: {by} fails without any change; fix it first")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools/mutate", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="only changes whose name or file contains TEXT")
    parser.add_argument("--list", action="store_true", help="print the changes and stop")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    options = parser.parse_args(arguments)
    try:
        everything = load(Path(__file__).parent)
    except BrokenList as error:
        print(f"mutate: {error}", file=sys.stderr)
        return 2
    mutations = [m for m in everything if options.only in m.name or options.only in m.file]
    if not mutations:
        print(f"mutate: no change contains '{options.only}'; --list shows all", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(f"{m.file}: {m.name}" for m in mutations))
        return 0
    out = sys.stderr if options.json else sys.stdout
    print(f"building the copy and its {len({t for m in mutations for t in m.tests})} test programs ...", file=out, flush=True)
    prepare(mutations)
    outcomes = []
    for number, mutation in enumerate(mutations, start=1):
        outcome = attempt(mutation)
        outcomes.append(outcome)
        print(f"[{number}/{len(mutations)}] {outcome.verdict:9} {mutation.name} ({outcome.seconds:.0f} s) {outcome.by}",
              file=out, flush=True)
    good = sum(outcome.good for outcome in outcomes)
    if options.json:
        print(json.dumps([vars(outcome) for outcome in outcomes], indent=2))
    print(f"{good} of {len(outcomes)} changes were noticed", file=out)
    return 0 if good == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
