"""tools/gpu-check without a device, with other programs in place of the built ones: its output, and the files that it keeps at any
end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tools"))

from gpu_check.parts import NAMES  # noqa: E402
from gpu_check.processes import ENDS, Job, Stopped, run_all, stop_on_signals  # noqa: E402
from gpu_check.run import Run  # noqa: E402

NO_DEVICE = "echo skipped: no CUDA device"
STUBS = {
    "device/bin/device_cuda_check": NO_DEVICE, "kernels/bin/kernels_cuda_check": NO_DEVICE, "kernels/bin/nccl_cuda_check": "echo skipped: no libnccl",
    "kernels/bin/kernels_cuda_bench": "echo '{\"skipped\": \"no CUDA device\"}'",
}  # fmt: skip
FOLDERS = ("device/lib/libpenstock_device_cuda.so", "kernels/plugins/compressor-made.so", "kernels/lib/kernels_cuda_door.so")
TOOLS = {
    "nvcc": "echo Cuda compilation tools, release 13.0, V13.0", "cmake": "exit 0", "ninja": "exit 0", "compute-sanitizer": "exit 0",
    "nvidia-smi": "exit 9",
}  # fmt: skip
A_DEVICE = "echo 580.1, NVIDIA H100, 9.0, 81559 MiB, Default"
AS_ON_THE_CPU = "echo as on the CPU"
KEPT = ("figures.json", "figures.md", "summary.txt", "found.tgz")


def program(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


class Place:
    """A checkout in which every build succeeds at once."""

    def __init__(self, folder: Path) -> None:
        self.root, self.tools, self.out = folder / "checkout", folder / "bin", folder / "out"
        for name in ("tools/gpu-check", "tools/gpu_check", "tools/benches", "tests/cuda/fuses_nothing.cmake"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).symlink_to(REPOSITORY / name)
        # Links would lead back to the repository.
        (self.root / "tools/gpu-check").unlink()
        (self.root / "tools/gpu_check").unlink()
        shutil.copy(REPOSITORY / "tools/gpu-check", self.root / "tools/gpu-check")
        shutil.copytree(REPOSITORY / "tools/gpu_check", self.root / "tools/gpu_check", ignore=shutil.ignore_patterns("__pycache__"))
        self.programs(**{})

    def programs(self, **changes: str) -> None:
        for name, body in TOOLS.items():
            program(self.tools / name, changes.get(name, body))
        built = self.root / "build/gpu-check/built"
        for name, body in STUBS.items():
            program(built / name, changes.get(Path(name).name, body))
        for name in FOLDERS:
            (built / name).parent.mkdir(parents=True, exist_ok=True)
            (built / name).touch()

    def start(self, *words: str, before: tuple[str, ...] = (), **environment: str) -> subprocess.Popen[str]:
        where = {**os.environ, "PATH": f"{self.tools}:/usr/bin:/bin", "CUDA_HOME": "/nowhere", **environment}
        where.pop("PYTHONPATH", None)
        command = [*before, self.root / "tools/gpu-check", *(words if "--out" in words else (*words, "--out", str(self.out)))]
        return subprocess.Popen(command, env=where, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words: str) -> tuple[int, str, dict[str, Any]]:
        process = self.start(*words)
        said, complaints = process.communicate(timeout=120)
        assert not complaints, complaints
        return process.returncode, said, self.figures()

    def figures(self) -> dict[str, Any]:
        return json.loads((self.out / "figures.json").read_text())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def is_kept(place: Place) -> None:
    assert sorted(path.name for path in place.out.iterdir()) == sorted(KEPT)
    assert place.figures()["goals"] and (place.out / "figures.md").read_text()
    with tarfile.open(place.out / "found.tgz") as tar:
        assert "found" in tar.getnames()


def test_without_a_compiler_every_part_is_skipped_and_says_why(place):
    shutil.rmtree(place.root / "build")
    for tool in ("nvcc", "cmake", "ninja"):
        (place.tools / tool).unlink()
    if shutil.which("nvcc", path="/usr/bin:/bin"):
        pytest.skip("nvcc is beside the other compilers")
    status, said, found = place.run()
    assert status == 0, said
    assert "check: skipped, 0 s. no CUDA compiler (nvcc), and there is no kernels_cuda_check" in said
    assert all("skipped" in one for one in found["checks"].values()) and all(goal["met"] is None for goal in found["goals"])
    assert "Not run on a device" in (place.out / "figures.md").read_text()
    is_kept(place)


def test_without_a_device_every_part_says_so_and_the_status_is_zero(place):
    status, said, found = place.run()
    assert status == 0, said
    assert tuple(found["checks"]) == NAMES and all(f"] {name}: skipped, " in said for name in NAMES)
    assert found["parts"].keys() == {"kernels", "torch_topk", "small_step", "steps_1", "steps_2"}
    assert found["parts"]["kernels"] == {"skipped": "no CUDA device"}
    for name in ("device", "check"):
        assert found["checks"][name] == {"skipped": "no CUDA device"}
    assert found["checks"]["nccl"] == {"skipped": "no libnccl"} and found["cuda"] == "13.0"
    is_kept(place)


def test_the_machine_is_told_before_anything_runs(place):
    place.programs(**{"nvidia-smi": A_DEVICE})
    _, said, found = place.run("--parts", "nccl")
    for words in ("driver, devices: 580.1, NVIDIA H100", "torch: ", "NCCL: ", "nvcc: ", "ulimit -l", "/dev/shm ", "compute-sanitizer "):
        assert words in said, said
    assert found["driver"] == "580.1" and found["device"] == "NVIDIA H100" and len(found["machine"]) >= 6


def test_a_device_that_the_driver_names_and_a_program_does_not_find_is_no_reason_to_skip(place):
    place.programs(**{"nvidia-smi": A_DEVICE})
    status, said, _ = place.run("--parts", "device", "nccl")
    assert status == 1 and "device: FAILED, 0 s. no CUDA device" in said and "nccl: skipped" in said


def test_one_difference_ends_neither_its_part_nor_another(place):
    place.programs(kernels_cuda_check=f'case "$*" in *signs*) echo bits differ; exit 1;; esac; {AS_ON_THE_CPU}', nccl_cuda_check="echo apart; exit 3")
    status, said, found = place.run("--for", "60")
    assert status == 1
    check = found["checks"]["check"]
    assert check["failed"] and "failed: signs: status 1: bits differ" in check["said"] and "dense: as on the CPU" in check["said"]
    assert check["said"][-1] == "failed: 1 of 19" and found["checks"]["nccl"] == {"said": ["apart", "failed: status 3"], "failed": True}
    assert found["parts"]["kernels"] == {"skipped": "no CUDA device"} and "failed or cut: check, nccl" in said


def test_findings_of_the_sanitizer_fail_it_and_time_that_is_up_does_not(place):
    finds = 'case "$*" in *racecheck*sums) echo "========= Error: Race reported"; exit 9;; esac'
    place.programs(**{"nvidia-smi": A_DEVICE, "compute-sanitizer": finds})
    status, _, found = place.run("--parts", "memcheck", "racecheck")
    assert status == 1 and "selection: no errors" in found["checks"]["memcheck"]["said"]
    assert found["checks"]["racecheck"]["said"][-1] == "failed: 1 of 19"
    assert any("Race reported" in line for line in found["checks"]["racecheck"]["said"])
    place.programs(**{"nvidia-smi": A_DEVICE, "compute-sanitizer": 'case "$*" in *selection) exit 0;; esac; exec sleep 600'})
    begin = time.monotonic()
    status, said, found = place.run("--parts", "memcheck", "--for", "25")
    assert time.monotonic() - begin < 100 and status == 0, said
    assert "dense: left out for want of time" in found["checks"]["memcheck"]["said"]


def test_the_limit_over_all_holds_and_the_next_call_goes_on(place):
    place.programs(nccl_cuda_check="exec sleep 600", device_cuda_check=AS_ON_THE_CPU)
    begin = time.monotonic()
    status, said, _ = place.run("--for", "25", "--parts", "device", "nccl", "kernels")
    assert time.monotonic() - begin < 100 and status == 1, said
    assert "nccl: CUT, " in said and "kernels: not reached" in said
    is_kept(place)
    _, said, _ = place.run("--for", "25")
    assert said.index("] kernels: ") < said.index("] nccl: ")  # parts that were cut come last


def test_what_ended_well_is_not_run_again_while_the_programs_are_the_same(place):
    place.programs(device_cuda_check=AS_ON_THE_CPU)
    _, said, _ = place.run()
    assert "device: ended well, " in said
    _, said, found = place.run()
    assert "device: ended well before" in said and found["checks"]["device"] == {"said": ["as on the CPU"]}
    assert "device: ended well, " in place.run("--again")[1]
    place.programs(device_cuda_check="echo another; exit 0")
    assert "device: ended well, " in place.run()[1]


def wait_until_it_blocks_or_handles(process: subprocess.Popen[str], number: int) -> None:
    status, bit = Path("/proc", str(process.pid), "status"), 1 << (number - 1)

    def has(mask: str) -> bool:
        return int(status.read_text().split(f"{mask}:")[1].split()[0], 16) & bit != 0

    while not (has("SigBlk") or has("SigCgt")):
        assert process.poll() is None
        time.sleep(0.01)


@pytest.mark.parametrize(("by", "seconds"), [("TERM", 0.0), ("TERM", 1.0), ("TERM", 2.0), ("TERM", 4.0), ("TERM", 7.0), ("timeout", 4.0), ("timeout", 7.0)])
def test_killed_at_any_second_it_leaves_what_it_has_and_no_program_behind(place, seconds, by):
    place.programs(kernels_cuda_check="sleep 98 & wait", device_cuda_check=AS_ON_THE_CPU)
    if by == "timeout":
        process = place.start("--for", "60", before=("timeout", "-k", "60", str(seconds)))
    else:
        process = place.start("--for", "60")
        wait_until_it_blocks_or_handles(process, signal.SIGTERM)
        time.sleep(seconds)
        process.send_signal(signal.SIGTERM)
    said, complaints = process.communicate(timeout=120)
    assert process.returncode == (124 if by == "timeout" else 143), said + complaints
    is_kept(place)
    assert "stopped by signal 15" in (place.out / "summary.txt").read_text()
    if "check: " not in said and place.figures()["checks"]["check"].get("failed"):
        assert place.figures()["checks"]["check"]["said"][-1] == "failed: stopped"
    assert not ends_with_children(place), "a program is still there"


def test_a_signal_while_a_program_is_being_started_ends_that_program_too(tmp_path, monkeypatch):
    begin, started = subprocess.Popen, []

    def interrupted(*words: Any, **more: Any) -> subprocess.Popen[bytes]:
        started.append(begin(*words, **more))
        os.kill(os.getpid(), signal.SIGTERM)
        return started[0]

    before = [signal.getsignal(number) for number in ENDS]
    stop_on_signals()
    monkeypatch.setattr(subprocess, "Popen", interrupted)
    try:
        with pytest.raises(Stopped):
            run_all([Job("one", ("sleep", "600"), 600, tmp_path / "out")], 1, time.monotonic() + 600, lambda _: None)
    finally:
        for number, handler in zip(ENDS, before):
            signal.signal(number, handler)
    assert started[0].returncode == -signal.SIGKILL


def ends_with_children(place: Place) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace") if entry.name.isdigit() else ""
        except OSError:
            continue
        if str(place.root) in words:
            found.append(words)
    return found


def test_a_build_that_fails_is_told_and_leaves_no_stale_program_to_be_taken_for_it(place):
    place.programs(ninja="echo error: no rule; exit 1")
    status, said, found = place.run()
    assert status == 1 and "programs: not built: building device: FAILED; error: no rule" in said
    assert found["checks"]["device"] == {"said": ["failed: device_cuda_check was not built"], "failed": True}
    is_kept(place)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--parts", "chek"), "'chek', expected some of: device, check"), (("--fast",), "--fast"), (("--for", "3"), "--for is 3"),
        (("--for", "soon"), "'soon'"), (("--out", "/dev/null"), "'/dev/null', expected a folder that can be written"), (("--sources",), "goes with --pack"),
    ],
)  # fmt: skip
def test_an_argument_that_means_nothing_is_named(words, said):
    done = subprocess.run([REPOSITORY / "tools/gpu-check", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and said in done.stderr


def test_help_lists_the_parts():
    done = subprocess.run([REPOSITORY / "tools/gpu-check", "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and all(f"  {name} " in done.stdout for name in NAMES)


def test_stopped_at_any_line_before_the_parts_it_keeps_its_files(place, monkeypatch):
    monkeypatch.setenv("PATH", f"{place.tools}:/usr/bin:/bin")

    def stopped_at(count: int) -> bool:
        """False if there are fewer lines than that."""
        lines = iter(range(count))

        def at_line(frame: FrameType, event: str, _: object) -> Any:
            if frame.f_code not in (Run.prepare.__code__, Run.programs.__code__):
                return None
            if event == "line" and next(lines, None) is None:
                sys.settrace(None)
                raise Stopped(signal.SIGTERM)
            return at_line

        shutil.rmtree(place.out, ignore_errors=True)
        run = Run(place.root, place.root / "build/gpu-check", place.out, time.monotonic(), float("inf"), is_short=False)
        run.machine.look = lambda: None  # type: ignore[method-assign]
        before = sys.gettrace()
        sys.settrace(at_line)
        try:
            run.prepare(anew=False, again=False)
        except Stopped:
            run.finish()
            assert not run.failed, f"stopped at line {count}"
            is_kept(place)
            return True
        finally:
            sys.settrace(before)
        return False

    count = 0
    while stopped_at(count):
        count += 1
    assert count > 20
