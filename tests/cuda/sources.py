"""The files of the CUDA part, and how a build with CUDA compiles each of them."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BUILT = REPOSITORY / "build/fits-on-devices"


def kernels() -> list[Path]:
    return [*sorted((REPOSITORY / "sdk/kernels/cuda").glob("*.cu")), REPOSITORY / "core/device/cuda/element_kernels.cu"]


@dataclass
class Command:
    """The compile command of a file."""

    words: list[str]
    folder: str

    def run(self, *instead: str) -> None:
        """instead: options that take the place of `-c` and the output."""
        words, output = list(self.words), self.words.index("-o")
        del words[output : output + 2]
        words.remove("-c")
        done = subprocess.run([*words, *instead], cwd=self.folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-4000:]


def commands(nvcc: str) -> dict[str, Command]:
    found = {}
    for source in ("tests/cuda", "core/device/cuda"):
        folder = BUILT / source.replace("/", "-")
        options = ("-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CUDA_ARCHITECTURES=90-virtual", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
        configured = ["cmake", "-S", source, "-B", folder, "-G", "Ninja", f"-DCMAKE_CUDA_COMPILER={nvcc}", *options]
        done = subprocess.run(configured, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        for entry in json.loads((folder / "compile_commands.json").read_text()):
            found[entry["file"]] = Command(shlex.split(entry["command"]), entry["directory"])
    return found
