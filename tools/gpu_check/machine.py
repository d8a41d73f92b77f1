"""The facts of this machine that the check needs. Each question has a time limit; a driver that hangs is an answer too."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TORCH = """
import glob, importlib.util, json, os, torch
def of(ask):
    try:
        return ask()
    except Exception as error:
        return str(error)
count = torch.cuda.device_count()
found = {"version": torch.__version__, "cuda": torch.version.cuda, "nccl": of(lambda: ".".join(map(str, torch.cuda.nccl.version()))),
         "available": torch.cuda.is_available(), "devices": [torch.cuda.get_device_name(d) for d in range(count)] if count else [],
         "accelerate": importlib.util.find_spec("accelerate") is not None}
if count:
    of(lambda: torch.cuda.init())
    found["capability"] = of(lambda: list(torch.cuda.get_device_capability(0)))
loaded = [line.split()[-1] for line in open("/proc/self/maps") if "libnccl.so" in line]
found["library"] = next(iter(loaded + glob.glob(os.path.dirname(torch.__file__) + "/../nvidia/nccl/lib/libnccl.so.2")), None)
print(json.dumps(found))
"""
ASK_S, TORCH_S = 20, 90


def said(*command: str, limit_s: float = ASK_S) -> str:
    """The output of the command, or the reason why there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"({error})"
    if done.returncode != 0:
        return f"(status {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]})"
    return done.stdout.strip()


def find(tool: str, *folders: Path) -> str:
    """The path of a tool on the search path or in a folder of `folders`; empty if it is not there."""
    beside = [str(folder / tool) for folder in folders if os.access(folder / tool, os.X_OK)]
    return shutil.which(tool) or (beside[0] if beside else "")


def python_with_torch(repository: Path) -> str:
    own = repository / ".venv/bin/python"
    candidates = [str(own)] if own.exists() else []
    for one in dict.fromkeys((*candidates, shutil.which("python3") or sys.executable)):
        if said(one, "-c", "import importlib.util; print(importlib.util.find_spec('torch') is not None)") == "True":
            return one
    return ""


def limit(which: int) -> str:
    soft = resource.getrlimit(which)[0]
    return "unlimited" if soft == resource.RLIM_INFINITY else str(soft)


def free_of(folder: str) -> str:
    try:
        found = shutil.disk_usage(folder)
    except OSError as error:
        return f"{folder}: {error}"
    return f"{folder} {found.free >> 20} of {found.total >> 20} MiB free"


@dataclass
class Machine:
    repository: Path
    nvcc: str = ""
    sanitizer: str = ""
    python: str = ""  # a Python with torch; empty: there is none
    torch: dict[str, Any] = field(default_factory=dict)
    why_no_torch: str = "it was not asked for torch"
    driver: str | None = None
    cuda: str | None = None
    devices: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def look(self) -> None:
        self.look_for_compilers()
        self.look_at_driver()
        self.look_at_torch()
        self.look_at_system()

    def look_for_compilers(self) -> None:
        """They are often installed beside the search path."""
        cuda = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin"
        self.nvcc = find("nvcc", cuda)
        beside = Path(self.nvcc).parent if self.nvcc else cuda
        self.sanitizer = find("compute-sanitizer", cuda, beside)
        release = re.search(r"release (\d[\d.]*)", said(self.nvcc, "--version")) if self.nvcc else None
        self.cuda = release.group(1) if release else None

    def look_at_driver(self) -> None:
        answer = said("nvidia-smi", "--query-gpu=driver_version,name,compute_cap,memory.total,compute_mode", "--format=csv,noheader")
        if answer and not answer.startswith("("):
            self.devices = answer.splitlines()
            self.driver = self.devices[0].split(",")[0]
        self.lines += [f"driver, devices: {one}" for one in self.devices] or [f"driver: nvidia-smi does not answer {answer}"]

    def look_at_torch(self) -> None:
        self.python = python_with_torch(self.repository)
        if not self.python:
            self.why_no_torch = "neither .venv/bin/python nor python3 has torch"
        else:
            answer = said(self.python, "-c", TORCH, limit_s=TORCH_S)
            try:
                self.torch = json.loads(answer.splitlines()[-1])
                self.why_no_torch = ""
            except (IndexError, ValueError):
                self.why_no_torch = f"{self.python} does not import torch {answer}"
        self.lines.append(f"torch: {self.python} {self.torch or self.why_no_torch}")
        self.lines.append(f"NCCL: torch's {self.torch.get('nccl')} in {self.nccl() or 'no file of its own: the loader looks for libnccl.so.2'}")

    def nccl(self) -> str:
        """Torch's own, where it lies: the loader mostly does not know it."""
        return self.torch.get("library") or ""

    def look_at_system(self) -> None:
        locked = limit(resource.RLIMIT_MEMLOCK)
        tools = [f"{tool} {find(tool) or '-'}" for tool in ("cmake", "ninja", "c++", "ncu")]
        self.lines += [
            f"nvcc: {self.nvcc or 'none'} {self.cuda or ''}",
            f"tools: {', '.join(tools)}, compute-sanitizer {self.sanitizer or '-'}",
            f"limits: locked memory (ulimit -l) {locked} bytes, open files {limit(resource.RLIMIT_NOFILE)}; {free_of('/dev/shm')}; {free_of('/tmp')}",
            f"system: {' '.join(os.uname()[:3:2])}, {os.confstr('CS_GNU_LIBC_VERSION')}, Python {sys.version.split()[0]}, {cores()} cores",
        ]
        if shutil.which("mpirun"):
            self.lines.append(f"MPI: {shutil.which('mpirun')}, not used: ranks meet over torch's gloo")

    def capability(self) -> tuple[int, int] | None:
        """Of the first device; None where there is none, or nobody tells."""
        found = re.search(r", (\d+)\.(\d+),", self.devices[0]) if self.devices else None
        if found:
            return int(found.group(1)), int(found.group(2))
        capability = self.torch.get("capability")
        return (capability[0], capability[1]) if isinstance(capability, list) else None

    def why_no_device(self) -> str:
        """The reason why torch cannot use a device; empty if it can."""
        if self.why_no_torch:
            return self.why_no_torch
        return "" if self.torch.get("available") else f"torch {self.torch.get('version')} finds no CUDA device"

    def facts(self) -> dict[str, Any]:
        names = [one.split(", ")[1] for one in self.devices] or self.torch.get("devices", [])
        versions = {"driver": self.driver, "cuda": self.cuda, "torch": self.torch.get("version")}
        return {"device": names[0] if names else None, **versions, "lines": self.lines}


def cores() -> int:
    return len(os.sched_getaffinity(0))
