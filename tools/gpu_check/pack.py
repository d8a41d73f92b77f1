"""All that gpu-check needs, in a folder for a machine without this repository's other needs."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path

from gpu_check.build import PREBUILT, PREBUILT_FOR, PROGRAMS, RUNTIME, compile_all
from gpu_check.machine import Machine

# What the build reads, and this command itself; what takes whole steps; and what was built here, where it is there.
NEEDED = (
    "tools/gpu-check", "tools/gpu_check", "core/device", "sdk/include/penstock", "sdk/kernels", "sdk/collectives", "sdk/testing", "sdk/cmake",
    "tests/cuda", "tools/benches/cuda", "sdk/methods", "plugins/collectives/nccl", "plugins/compressors", "plugins/memories", "conf",
    "frontends/python", "tools/benches/step", "tools/penstock/plan/profiles",
)  # fmt: skip
BUILT = ("build/release/lib", "build/release/bin/penstock")
NOT_OURS = ("libpenstock_device_simulated.so", "growth_template.so", "libpenstock_plugin_base.so")
BUILD_FOR_S = 1800


def system_libraries(library: Path) -> list[str]:
    """Those that the runtime is linked with and another machine may lack."""
    found = subprocess.run(["ldd", str(library)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"lib(?:spdlog|fmt)\.\S+ => (\S+)", found)


def add_prebuilt(repository: Path, target: Path, machine: Machine) -> str:
    """Why they do not go along; empty where they do."""
    folder = repository / "build/gpu-pack-build"
    folder.mkdir(parents=True, exist_ok=True)
    wrong = compile_all(folder, repository, machine, PREBUILT_FOR, time.monotonic() + BUILD_FOR_S)
    if wrong:
        return wrong
    plugins = [f"kernels/plugins/{path.name}" for path in (folder / "kernels/plugins").glob("*.so")]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, tarfile.open(target, "w:xz", preset=3) as tar:
        for number, name in enumerate((*PROGRAMS, *sorted(plugins))):
            stripped = Path(place, str(number))
            subprocess.run(["strip", "--strip-unneeded", "-o", str(stripped), str(folder / name)], check=True)
            tar.add(stripped, name)
    return ""


def pack(repository: Path, with_programs: bool) -> int:
    target = repository / "build/gpu-pack"
    shutil.rmtree(target, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache", *NOT_OURS)
    for name in (*NEEDED, *BUILT):
        source = repository / name
        if name in BUILT and not source.exists():
            print(f"not in the pack: {name} (tools/setup builds it); without it steps and training are skipped")
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy2(source, target / name)
    if (target / RUNTIME).is_file():
        system = target / "build/release/lib/system"
        system.mkdir()
        for library in system_libraries(repository / RUNTIME):
            shutil.copy2(library, system)
    machine = Machine(repository)
    machine.look_for_compilers()
    wrong = add_prebuilt(repository, target / PREBUILT, machine) if with_programs else "--sources"
    if wrong:
        print(f"not in the pack: programs for compute capability 9.0 ({wrong}); they are built there")
    files = [path for path in target.rglob("*") if path.is_file() and not path.is_symlink()]
    print(f"packed {len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.1f} MB, in build/gpu-pack; there: tools/gpu-check")
    return 0
