from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import sources


@pytest.fixture(scope="session")
def nvcc() -> str:
    """The path of nvcc, searched as tools/gpu-check does."""
    beside = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin/nvcc"
    found = shutil.which("nvcc") or (str(beside) if os.access(beside, os.X_OK) else None)
    if found is None:
        pytest.skip(f"no CUDA compiler: nvcc is neither on the search path nor in {beside.parent}")
    return found


@pytest.fixture(scope="session")
def commands(nvcc: str) -> dict[str, sources.Command]:
    """By file: the compile command of a build with CUDA."""
    return sources.commands(nvcc)
