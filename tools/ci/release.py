"""The steps of a release; tools/release runs it, docs/releasing.md explains it.

Usage: tools/release VERSION [--date YYYY-MM-DD] [--dry-run]. With --dry-run it shows every step and changes nothing.
"""

from __future__ import annotations

import argparse
import datetime
import difflib
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSION = re.compile(r"\d+\.\d+\.\d+")
# Files that name the version, and how. The group is the version.
PLACES = (
    ("CMakeLists.txt", r"project\(Penstock VERSION ([0-9.]+)"),
    ("frontends/python/penstock/__init__.py", r'__version__ = "([0-9.]+)"'),
    ("CITATION.cff", r"(?m)^version: ([0-9.]+)$"),
    ("docs/install.md", r"penstock-([0-9.]+)-py3-none"),
)
ENTRY = re.compile(r"(?m)^## Unreleased: (?P<version>[0-9.]+) \(plugin ABI (?P<abi>[0-9.]+)\)$")
ABI = re.compile(r"define PENSTOCK_ABI_(MAJOR|MINOR) (\d+)")
# Tests, site and wheel, in this order.
COMMANDS = (("tools/test", "--all", "--fresh"), ("tools/docs",), ("tools/wheel", "--python", "python3.9"))


class Refused(Exception):
    """A release cannot be made; the text says why and what to do."""


def bumped(name: str, pattern: str, text: str, version: str) -> str:
    found = list(re.finditer(pattern, text))
    if len(found) != 1:
        raise Refused(f"{name} names the version {len(found)} times, expected once ({pattern})")
    return text[: found[0].start(1)] + version + text[found[0].end(1) :]


def with_date(changelog: str, version: str, abi: str, date: str) -> str:
    found = ENTRY.search(changelog)
    if not found:
        raise Refused(f"CHANGELOG.md has no heading '## Unreleased: {version} (plugin ABI {abi})'; write the entry first")
    if found["version"] != version:
        raise Refused(f"CHANGELOG.md's unreleased entry is {found['version']}, not {version}; correct the heading or the argument")
    if found["abi"] != abi:
        raise Refused(f"CHANGELOG.md names plugin ABI {found['abi']}, the headers have {abi}; correct the heading")
    return changelog[: found.start()] + f"## {version}, {date} (plugin ABI {abi})" + changelog[found.end() :]


def abi_of(header: str) -> str:
    numbers = dict(ABI.findall(header))
    if set(numbers) != {"MAJOR", "MINOR"}:
        raise Refused("sdk/include/penstock/base.h does not define PENSTOCK_ABI_MAJOR and PENSTOCK_ABI_MINOR")
    return f"{numbers['MAJOR']}.{numbers['MINOR']}"


def refuse_older(version: str, tags: Sequence[str]) -> None:
    def numbers(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in text.split("."))

    for tag in tags:
        if VERSION.fullmatch(tag.removeprefix("v")) and numbers(tag.removeprefix("v")) >= numbers(version):
            raise Refused(f"{version} is not newer than the tag {tag}; take a higher version")


def changes(root: Path, version: str, date: str) -> dict[str, tuple[str, str]]:
    """Path -> text before and after."""
    found = {}
    for name, pattern in PLACES:
        before = (root / name).read_text(encoding="utf-8")
        found[name] = (before, bumped(name, pattern, before, version))
    before = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    abi = abi_of((root / "sdk/include/penstock/base.h").read_text(encoding="utf-8"))
    found["CHANGELOG.md"] = (before, with_date(before, version, abi, date))
    return found


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True).stdout


def release(root: Path, version: str, date: str, dry: bool, say: Callable[[str], None]) -> None:
    if not VERSION.fullmatch(version):
        raise Refused(f"the version is '{version}', expected three numbers, as in 0.1.0")
    refuse_older(version, git(root, "tag").split())
    if not dry and git(root, "status", "--porcelain"):
        raise Refused("the checkout has changes that are not committed; commit or stash them")
    changed = changes(root, version, date)
    for name, (before, after) in changed.items():
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, n=0, lineterm="")
        say("\n".join(lines) or f"{name}: names {version} already")
    after_commands = (("git", "commit", "-a", "-m", f"release {version}"), ("git", "tag", "-a", f"v{version}", "-m", f"Penstock {version}"))
    if dry:
        for command in (*COMMANDS, *after_commands):
            say("would run: " + " ".join(f"'{word}'" if " " in word else word for word in command))
        say("nothing was changed")
        return
    for name, (_, after) in changed.items():
        (root / name).write_text(after, encoding="utf-8")
    for command in (*COMMANDS, *after_commands):
        say("running: " + " ".join(command))
        if subprocess.run(command, cwd=root, check=False).returncode != 0:
            raise Refused(f"{command[0]} failed; fix that, put the files back with git checkout, and begin again")
    say(f"tagged v{version}; push the branch and the tag, and upload dist/*.whl")


def main(arguments: list[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="tools/release", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", metavar="VERSION", help="three numbers, as in 0.1.0")
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="date of the changelog entry; today unless given")
    parser.add_argument("--dry-run", action="store_true", help="show every step and change nothing")
    options = parser.parse_args(arguments)
    try:
        release(root, options.version, options.date, options.dry_run, print)
    except Refused as refusal:
        print(f"release: {refusal}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
