"""Keys of stored runs: hashes of facts, and of the files whose change makes a stored run stale."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def digest(parts: Iterable[bytes]) -> str:
    sha = hashlib.sha256()
    for part in parts:
        sha.update(len(part).to_bytes(8, "little"))
        sha.update(part)
    return sha.hexdigest()[:20]


def code(*patterns: str) -> list[bytes]:
    """Contents of the files of the repository that match, in a fixed order."""
    files = sorted({path for pattern in patterns for path in REPOSITORY.glob(pattern) if path.is_file()})
    return [content for path in files for content in (str(path.relative_to(REPOSITORY)).encode(), path.read_bytes())]


def of_the_task() -> list[bytes]:
    return code("tools/quickstart_job/model.py", "tools/quickstart_job/data.py")
