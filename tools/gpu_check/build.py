"""The programs of the CUDA part: the programs of a pack if they load and run, else programs built here."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from gpu_check.machine import Machine, cores, find, said
from gpu_check.processes import WELL, Ended, Job, run_all

SOURCES = {"device": "core/device/cuda", "kernels": "tests/cuda"}
CHECK, BENCH = "kernels/bin/kernels_cuda_check", "kernels/bin/kernels_cuda_bench"
NCCL_CHECK, DOOR = "kernels/bin/nccl_cuda_check", "kernels/lib/kernels_cuda_door.so"
DEVICE_CHECK, TABLE = "device/bin/device_cuda_check", "device/lib/libpenstock_device_cuda.so"
PROGRAMS = (DEVICE_CHECK, TABLE, CHECK, BENCH, NCCL_CHECK, DOOR)
PREBUILT = "build/gpu-prebuilt.tar.xz"
PREBUILT_FOR = "90"  # the compute capability of H100 and H200, and its PTX for later ones
RUNTIME = "build/release/lib/libpenstock.so.0"
CONFIGURE_S, BUILD_S, ASK_PROGRAM_S = 120, 1800, 60
TESTS_OWN = "compressor-doubled.so"


def configured(folder: Path, name: str, repository: Path, machine: Machine, architecture: str) -> list[str]:
    command = ["cmake", "-S", str(repository / SOURCES[name]), "-B", str(folder / name), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
    command += [f"-DCMAKE_CUDA_COMPILER={machine.nvcc}"] + ([f"-DCMAKE_CUDA_ARCHITECTURES={architecture}"] if architecture else [])
    if find("ccache"):
        command += [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("CXX", "CUDA")]
    return command


def compile_all(folder: Path, repository: Path, machine: Machine, architecture: str, until: float) -> str:
    """Builds all programs in `folder` and keeps earlier outputs. Returns the reason of a failure; empty if all were built."""
    missing = [tool for tool in ("cmake", "ninja", "c++") if not find(tool)] + ([] if machine.nvcc else ["nvcc"])
    if missing:
        return f"{', '.join(missing)}: not installed"
    wrong = []

    def note(ended: Ended) -> None:
        if ended.how != WELL:
            lines = ended.job.output.read_text(errors="replace").splitlines() if ended.job.output.is_file() else []
            errors = [line for line in lines if "error" in line or "FAILED" in line][:3] or lines[-3:]
            wrong.append(f"{ended.job.name}: {ended.how}; {' | '.join(errors)}")

    for name in SOURCES:
        configure = configured(folder, name, repository, machine, architecture)
        make = ["ninja", "-k", "0", "-j", str(cores()), "-C", str(folder / name)]
        before = len(wrong)
        run_all([Job(f"configuring {name}", configure, CONFIGURE_S, folder / f"configure-{name}.log")], 1, until, note)
        if len(wrong) == before:
            run_all([Job(f"building {name}", make, BUILD_S, folder / f"build-{name}.log")], 1, until, note)
    if wrong:
        take_away_stale(folder)
    return "; ".join(wrong)


def take_away_stale(folder: Path) -> None:
    """After a failed build removes outputs of earlier builds from other sources, so that they are not used."""
    for name in SOURCES:
        of_it = [path for path in (*(folder / one for one in PROGRAMS), *folder.glob("kernels/plugins/*.so")) if (folder / name) in path.parents]
        for path in of_it:
            if path.is_file() and "no work to do" not in said("ninja", "-n", "-C", str(folder / name), str(path.relative_to(folder / name))):
                path.unlink()


def unpacked(archive: Path, folder: Path) -> str:
    """Unpacks an archive into `folder`, unless an earlier call has done it. Returns the reason of a failure; empty if there is none."""
    if not archive.is_file():
        return "none came along"
    name = hashlib.sha256(archive.read_bytes()).hexdigest()
    if (folder / "of").is_file() and (folder / "of").read_text() == name:
        return ""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder)
    except (OSError, EOFError, tarfile.TarError) as error:  # a Python without xz, too
        return f"{archive.name} cannot be unpacked: {error}"
    (folder / "of").write_text(name)
    return ""


def why_not_prebuilt(archive: Path, folder: Path, machine: Machine) -> str:
    """Why the programs that came along are not used; empty where they are in `folder`, load and run."""
    why = unpacked(archive, folder)
    if why:
        return why
    missing = [name for name in PROGRAMS if not (folder / name).is_file()]
    if missing:
        return f"{archive.name} has no {missing[0]}"
    capability = machine.capability()
    if capability is not None and capability < (9, 0):
        return f"they are for compute capability 9.0 and later, and the device has {capability[0]}.{capability[1]}"
    for path in (*(folder / name for name in PROGRAMS), *sorted((folder / "kernels/plugins").glob("*.so"))):
        done = subprocess.run(["ldd", str(path)], capture_output=True, text=True)
        lacking = [line.strip() for line in (done.stdout + done.stderr).splitlines() if "not found" in line]
        if done.returncode != 0 or lacking:
            return f"{path.name} does not load: {(lacking or [done.stderr.strip()])[0]}"
    check = str(folder / CHECK)
    listed = said(check, "--list", limit_s=ASK_PROGRAM_S)
    if listed.startswith("("):
        return f"{Path(check).name} does not run {listed}"
    # They bring CUDA's runtime along, which a driver may be too old for.
    ran = said(check, "--short", "refusals", limit_s=ASK_PROGRAM_S) if capability is not None else ""
    return f"they find no device: {ran}" if ran.startswith("skipped: ") else ""


def lay_out_runtime(folder: Path, repository: Path, programs: Path) -> str:
    """The runtime of the release build, where it finds the table and the plugins of `programs`. Why it cannot; empty where it did."""
    if not (repository / RUNTIME).is_file():
        return f"there is no {RUNTIME}; tools/setup builds it"
    if not (programs / TABLE).is_file():
        return "the device's table was not built"
    shutil.rmtree(folder, ignore_errors=True)
    plugins = folder / "penstock/plugins"
    plugins.mkdir(parents=True)
    library = repository / "build/release/lib"
    for path in (repository / RUNTIME, programs / TABLE, *library.glob("system/*")):
        shutil.copy2(path, folder)
    # Plugins with kernels for devices replace plugins without.
    for path in (*library.glob("penstock/plugins/*.so"), *(programs / "kernels/plugins").glob("*.so")):
        if path.name != TESTS_OWN:
            shutil.copy2(path, plugins)
    return ""


def stamp(files: Sequence[Path], folders: Sequence[Path]) -> str:
    """A name for the content of all these files. Results with other files do not count."""
    digest = hashlib.sha256()
    inside = [path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix in (".so", ".py", ".toml", ".0", ".csv")]
    for path in (*files, *inside):
        if path.is_file():
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]
