#!/usr/bin/env python3
"""Keeps the verdict of a whole green run of tools/test --all, for the same code on the same machine.

    verdict.py find --variables TEXT              is a verdict kept for this code and machine?
    verdict.py keep --variables TEXT --digest D [arguments of count_tests.py]

A verdict belongs to every file that git tracks or would track, except prose (*.md outside tests/), and to the machine:
its packages, processor, kernel, cores, user, Python environment, and the variables that tools/test_steps.sh hands over
as --variables. Nothing smaller than a whole run is kept. `find` prints the digest, then what it found; its status is 0
if a verdict is kept. `keep` keeps only a run without a failed test that skipped no test but those of tests/skipped.txt.
Whoever calls `keep` has made sure that the run began in a fresh clone and needed no second try. The status is 0 if the
verdict was kept.

Verdicts lie in $XDG_CACHE_HOME/penstock/verdicts (~/.cache/penstock/verdicts), a file each.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import hashlib
import json
import os
import platform
import re
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import count_tests

SKIPPED = Path("tests/skipped.txt")
PAGE = Path("docs/testing.md")
MOST_KEPT = 100


def store() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock/verdicts"


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def is_prose(path: str) -> bool:
    return path.endswith(".md") and not path.startswith("tests/")


def code() -> str:
    """The digest of every file that decides about a test: its name, its mode and its content."""
    listed = output_of("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    digest = hashlib.sha256()
    for path in sorted(set(filter(None, listed))):
        if is_prose(path):
            continue
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            continue  # removed, and the removal is not committed
        content = os.readlink(path).encode() if stat.S_ISLNK(mode) else Path(path).read_bytes() if stat.S_ISREG(mode) else b""
        digest.update(f"{path}\0{stat.S_IFMT(mode)} {bool(mode & stat.S_IXUSR)} {hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()


def processor(text: str) -> str:
    """Model and flags of the first processor of /proc/cpuinfo."""
    lines = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return "\n".join(value.strip() for name, _, value in lines if name.strip() in ("model name", "flags"))


def machine(python: str, set_variables: str) -> dict[str, str]:
    """What of a machine a test may depend on, by its name."""
    return {
        "packages": output_of("dpkg-query", "-W", "-f", "${Package} ${Version}\n"),
        "processor": processor(Path("/proc/cpuinfo").read_text()),
        "kernel": f"{platform.release()} {platform.version()}",
        "cores": str(len(os.sched_getaffinity(0))),
        "user": f"{os.getuid()} {sorted(os.getgroups())}",
        "devices": " ".join(path for path in ("/dev/net/tun", "/dev/nvidiactl") if Path(path).exists()),
        "python environment": output_of(python, "-VV") + output_of(python, "-m", "pip", "freeze", "--all"),
        "variables": set_variables,
    }


def hashed(facts: Mapping[str, str]) -> dict[str, str]:
    return {name: hashlib.sha256(value.encode()).hexdigest() for name, value in facts.items()}


def digest_of(parts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def kept() -> list[dict]:
    """All verdicts of this machine, the newest first. A file that cannot be read is none."""
    found = []
    for file in store().glob("*.json"):
        try:
            verdict = json.loads(file.read_text(encoding="utf-8"))
            found.append((verdict["date"], verdict))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return [verdict for _, verdict in sorted(found, key=lambda pair: pair[0], reverse=True)]


def find(parts: Mapping[str, str]) -> bool:
    print(digest_of(parts))
    verdicts = kept()
    for verdict in verdicts:
        if verdict.get("parts") == parts:
            print(f"everything but pages has passed already: tools/test --all of {verdict['date']}, commit {verdict['commit']}, "
                  f"{verdict['passed']} passed, {len(verdict['skipped'])} skipped, with this code on this machine; "
                  "only the checks of pages run (--fresh runs everything)")
            return True
    if verdicts:
        differs = [name for name, value in parts.items() if verdicts[0]["parts"].get(name) != value]
        print(f"everything runs: since the verdict of {verdicts[0]['date']} these have changed: {', '.join(differs)}")
    else:
        print("everything runs: no verdict is kept on this machine")
    return False


def skips_known(skipped: list[str]) -> list[str]:
    """The skipped tests that tests/skipped.txt does not name."""
    lines = SKIPPED.read_text(encoding="utf-8").splitlines() if SKIPPED.exists() else []
    patterns = [line for line in lines if line.strip() and not line.startswith("#")]
    return [name for name in skipped if not any(fnmatch.fnmatchcase(name, as_pattern(line)) for line in patterns)]


def as_pattern(line: str) -> str:
    """Names have brackets, which are no set of letters here: only * stands for something."""
    return line.strip().replace("[", "[[]")


def reasons() -> list[str]:
    """The rows of the table "date, sum of ctest": why the sum was allowed to grow (ratchet.py)."""
    _, _, table = PAGE.read_text(encoding="utf-8").partition("\n| date | sum of ctest |")
    return re.findall(r"^\| \d{4}-.*$", table.split("\n\n")[0], re.MULTILINE)


def keep(parts: Mapping[str, str], digest: str, count: count_tests.Count) -> bool:
    if count.failures:
        print("no verdict is kept: a test failed")
        return False
    if digest_of(parts) != digest:
        print("no verdict is kept: the code or the machine changed while the tests ran")
        return False
    if more := skips_known(count.skipped):
        print(f"no verdict is kept: skipped, and not in {SKIPPED}: {', '.join(more)}")
        return False
    store().mkdir(parents=True, exist_ok=True)
    verdict = {
        "date": datetime.datetime.now().isoformat(" ", "seconds"),
        "commit": output_of("git", "rev-parse", "--short", "HEAD").strip(),
        "passed": count.passed,
        "skipped": count.skipped,
        "seconds": count.seconds,
        "reasons": reasons(),
        "parts": parts,
    }
    file = store() / f"{digest}.json"
    file.with_suffix(".part").write_text(json.dumps(verdict), encoding="utf-8")
    file.with_suffix(".part").replace(file)
    for old in sorted(store().glob("*.json"), key=lambda path: path.stat().st_mtime)[:-MOST_KEPT]:
        old.unlink()
    print("this verdict is kept: with this code on this machine tools/test --all runs only the checks of pages")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("call", choices=("find", "keep"))
    parser.add_argument("--variables", default="")
    parser.add_argument("--digest", default="")
    parser.add_argument("--python", default=".venv/bin/python")
    count_tests.add_arguments(parser)
    options = parser.parse_args()
    try:
        parts = {"code": code(), **hashed(machine(options.python, options.variables))}
    except (OSError, subprocess.CalledProcessError) as cannot:
        print(f"\neverything runs, and no verdict is kept: {cannot}")
        return 1
    good = find(parts) if options.call == "find" else keep(parts, options.digest, count_tests.count_of(options))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
