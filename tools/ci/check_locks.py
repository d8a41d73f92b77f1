#!/usr/bin/env python3
"""Checks the locks of the core by clang: code that reads guarded data, or calls a function that needs a mutex, holds it.

The declaration of guarded data names the mutex (core/base/mutex.hpp). Each source of core/ is parsed with
-Wthread-safety, and nothing is compiled. The core uses no other mutex: a standard mutex is refused, because clang does
not check it.

Usage: tools/ci/check_locks.py [--root DIRECTORY] [--jobs N] [FILE...]. Prints the messages of clang and ends with 1 if
there are any.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from check_includes import files_of, is_test  # noqa: E402

FLAGS = ("-std=c++20", "-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-Werror=thread-safety")
INCLUDES = ("", "sdk", "sdk/include", "core/include")
DEFINITIONS = ("TOML_HEADER_ONLY=1", "BOOST_DLL_USE_STD_FS", 'PENSTOCK_VERSION="0"')

BATCH = 16  # sources that are parsed together

# Standard mutexes that stay: in the implementation of Mutex, as a parameter of a library, and a recursive mutex that
# guards no data.
STANDARD = {"core/base/mutex.hpp", "core/trace/log.cpp", "core/plugin/loader.cpp"}
_STANDARD = re.compile(r"\bstd::(mutex|condition_variable|lock_guard|unique_lock|scoped_lock|shared_mutex|recursive_mutex)\b")


def is_checked(path: str) -> bool:
    """Sources and headers of the core, without tests."""
    is_source = path.startswith("core/") and path.endswith((".cpp", ".hpp"))
    return is_source and not is_test(path) and not path.startswith("core/device/cuda/")


def standard_locks(files: Mapping[str, str]) -> list[str]:
    """Uses of standard mutexes and locks among the files, given as path -> text."""
    violations = []
    for path in sorted(files):
        if path in STANDARD:
            continue
        for number, line in enumerate(files[path].splitlines(), start=1):
            found = _STANDARD.search(line.split("//")[0])
            if found:
                violations.append(f"{path}:{number}: {found[0]}: expected a Mutex, Lock or Condition of core/base/mutex.hpp, which clang checks")
    return violations


def batches(sources: list[str]) -> list[list[str]]:
    """Sources of one folder, several together: most of the time goes into headers that they share."""
    folders: dict[str, list[str]] = {}
    for path in sources:
        folders.setdefault(str(Path(path).parent), []).append(path)
    return [paths[i : i + BATCH] for paths in folders.values() for i in range(0, len(paths), BATCH)]


def parse(clang: str, root: Path, sources: list[str]) -> list[str]:
    """The messages of clang about the sources; empty if there are none."""
    command = [clang, *FLAGS, *(f"-I{root / place}" for place in INCLUDES), *(f"-D{name}" for name in DEFINITIONS), "-xc++", "-"]
    text = "".join(f'#include "{path}"\n' for path in sources)
    done = subprocess.run(command, cwd=root, input=text, capture_output=True, text=True, check=False)
    if done.returncode == 0 and not done.stderr:
        return []
    if len(sources) == 1:
        return [done.stderr.strip() or f"{sources[0]}: {clang} ended with {done.returncode}"]
    # Each source alone, because the fault may be that two sources cannot be parsed together.
    return [text for path in sources for text in parse(clang, root, [path])]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Checks the locks of the core by clang's -Wthread-safety.")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("files", nargs="*", help="sources to parse; all of core/ without")
    options = parser.parse_args(arguments)
    clang = shutil.which("clang++")
    if clang is None:
        print("check_locks: clang++ is not on this machine; tools/setup installs it", file=sys.stderr)
        return 1
    files = {path: text for path, text in files_of(options.root).items() if is_checked(path)}
    said = standard_locks(files)
    sources = options.files or [path for path in files if path.endswith(".cpp")]
    with ThreadPoolExecutor(options.jobs) as pool:
        for texts in pool.map(lambda batch: parse(clang, options.root, batch), batches(sources)):
            said += texts
    for text in said:
        print(text)
    print(f"check_locks: {len(sources)} sources, {len(said)} with violations")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
