"""Gradients on CUDA devices: the runtime takes them where they lie, on simulated devices. Also the
calls of torch for devices, and refusals."""

from __future__ import annotations

import os
import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest
import simulated_devices
import torch
import warm_python
from launch import OVER, run_python, succeed

from penstock import _library as c
from penstock.common.devices import HOST, Place
from penstock.common.gradient_set import GradientSpec
from penstock.torch import devices, tensors
from penstock.torch.compression import Compression
from penstock.torch.gradients import GradientSlot

PACKAGE = Path(__file__).resolve().parents[1]
CUDA = Place(c.DEVICE_CUDA, 0)

needs_simulated_devices = pytest.mark.skipif(
    not simulated_devices.SIMULATED.exists(),
    reason=f"there is no {simulated_devices.SIMULATED}: build penstock_device_simulated",
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_devices.lay_out(tmp_path_factory.mktemp("simulated"))


# ---- the runtime on simulated devices ----


@needs_simulated_devices
@pytest.mark.skipif(OVER != "mpi", reason="what a device does is the same over every transport")
@pytest.mark.parametrize("ranks", (1, 2))
def test_gradients_go_from_and_to_the_device_without_a_wait(ranks, library, monkeypatch):
    monkeypatch.setenv("PENSTOCK_LIBRARY", str(library))
    succeed("devices.py", ranks)


@needs_simulated_devices
def test_a_lost_device_ends_backward_with_its_words(library, tmp_path):
    here = Path(__file__).resolve().parent
    variables = {"PENSTOCK_LIBRARY": str(library), "TMPDIR": str(tmp_path)}
    variables |= {"RANK": "0", "WORLD_SIZE": "1"}
    path = os.pathsep.join(map(str, (PACKAGE, here)))
    done = run_python(here / "ranks/devices.py", "lost", PYTHONPATH=path, **variables)
    assert done.returncode == 0 and done.stdout == "all checks passed\n", done.stdout + done.stderr


def why_not(library: Path | None, number: int = 0, **variables: str) -> str:
    """The answers of a new process about a device."""
    code = f"import penstock.common.devices as d; print(d.why_not_in_place({number}))"
    if library is not None:
        variables["PENSTOCK_LIBRARY"] = str(library)
    done = run_python("-c", code, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_simulated_devices
def test_the_table_says_which_devices_are_taken_in_place(library):
    assert why_not(library) == ""
    assert why_not(library, 1) == ""
    assert "there is no cuda:2 for Penstock: it sees 2 CUDA device(s)" in why_not(library, 2)
    none = why_not(library, PENSTOCK_SIMULATED_DEVICES="0")
    assert "no CUDA device can be used: the driver finds no device" in none


@needs_simulated_devices
def test_a_table_that_is_missing_or_spoilt_is_named_with_what_to_do(library, tmp_path):
    simulated_devices.lay_out(tmp_path)
    table = tmp_path / simulated_devices.TABLE_FILE
    table.write_bytes(b"no library")
    spoilt = why_not(tmp_path / library.name)
    assert f"{table} cannot be used" in spoilt and "install the file" in spoilt
    table.unlink()
    missing = why_not(tmp_path / library.name)
    assert f"there is no {table}" in missing and "-DPENSTOCK_CUDA=ON" in missing


# ---- the check of a real device (tools/gpu-check) ----


def on_device(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = Path(__file__).resolve().parent / "scripts" / name
    return run_python(script, *arguments)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device: tools/gpu-check")
@pytest.mark.parametrize(
    "script",
    (
        "train_on_device.py", "methods_on_device.py", "first_step_on_device.py", "captured_on_device.py",
        "compiled_on_device.py", "fsdp_on_device.py", "far_apart_on_device.py", "accelerate_on_device.py",
    ),
)  # fmt: skip
def test_the_check_of_a_device_says_that_it_is_skipped_without_one(script):
    done = on_device(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("skipped: torch") and "finds no CUDA device" in done.stdout


def test_the_check_of_a_device_finds_the_curve_of_the_cpu_on_the_cpu():
    done = on_device("train_on_device.py", "--device", "cpu", "--steps", "12")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 6 and all("at most 0.00% apart" in line for line in lines), done.stdout


@pytest.mark.long
@pytest.mark.parametrize("route, dtype", (("flat", "bfloat16"), ("hierarchical", "float32")))
def test_the_check_of_methods_finds_the_bits_of_the_cpu_on_the_cpu(route, dtype):
    words = ("--device", "cpu", "--steps", "3", "--route", route, "--dtype", dtype)
    done = on_device("methods_on_device.py", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines and all(line.endswith("of the CPU") for line in lines), done.stdout


def over_gloo(ranks: int, script: str) -> subprocess.CompletedProcess[str]:
    """Started as by tools/gpu-check, but on the CPU."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1")
    folder = Path(__file__).resolve().parent / "scripts"
    words = (str(folder / "over_gloo.py"), str(folder / script), "--device", "cpu")
    count = ("--nproc-per-node", str(ranks))
    variables = {"PYTHON_EXEC": warm_python.executable(), "GLOO_SOCKET_IFNAME": "lo"}  # torchrun starts PYTHON_EXEC
    return run_python(*launcher, *count, *words, **variables)


def test_reductions_of_fsdp_and_a_sharded_model_are_tried_on_the_cpu():
    done = over_gloo(2, "fsdp_on_device.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("as on the CPU") == 3 and "0.00% from the plain one" in done.stdout


def test_ranks_that_train_apart_are_tried_on_the_cpu():
    done = on_device("far_apart_on_device.py", "--device", "cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": 0.0e+00 from the CPU") == 4, done.stdout


def test_a_capture_without_a_device_says_why_it_is_skipped():
    done = over_gloo(1, "captured_on_device.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped: what is captured is work of a CUDA device" in done.stdout


def test_first_steps_are_timed_with_what_loads_kernels_beside():
    done = over_gloo(1, "first_step_on_device.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CUDA_MODULE_LOADING=" in done.stdout and done.stdout.count("first step ") == 3


def test_accelerate_is_tried_where_it_is_installed():
    done = over_gloo(1, "accelerate_on_device.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped: Accelerate is not installed" in done.stdout or done.stdout.count("loss ") == 3


def test_the_check_over_nccl_wants_devices():
    done = on_device("methods_on_device.py", "--device", "cpu", "--nccl")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "skipped: NCCL moves memory of CUDA devices\n"


# ---- calls of torch ----


class Elsewhere:
    """A stand-in for a tensor on a device, for questions about its place."""

    def __init__(self, name: str) -> None:
        self.device = torch.device(name)
        self.is_cpu = False


@pytest.fixture
def nothing_said(monkeypatch):
    monkeypatch.setattr(devices, "_said_copied", False)
    monkeypatch.setattr(devices, "_places", {})


def test_copies_through_host_memory_are_said_once_with_the_reason(nothing_said, monkeypatch):
    monkeypatch.setattr(devices, "why_not_in_place", lambda number: f"no cuda:{number} here")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert tensors.readable_by_address(torch.ones(3)) and not caught
        assert devices.place_of(Elsewhere("cuda:1")) == HOST
        assert devices.place_of(Elsewhere("meta")) == HOST
    (said,) = caught
    assert "tensors on cuda are copied through host memory" in str(said.message)
    assert "no cuda:1 here" in str(said.message)


def test_a_device_of_another_kind_is_said_to_be_unknown(nothing_said):
    with pytest.warns(UserWarning, match="tensors on meta .* knows the CPU and CUDA only"):
        assert devices.place_of(Elsewhere("meta")) == HOST


def test_nothing_is_said_where_gradients_are_taken_in_place(nothing_said, monkeypatch):
    asked: list[int] = []
    monkeypatch.setattr(devices, "why_not_in_place", lambda number: asked.append(number) or "")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("cuda:1", "cuda:0", "cuda:1"):
            place = devices.place_of(Elsewhere(name))
            assert place == Place(c.DEVICE_CUDA, int(name[-1]))
    assert asked == [1, 0]


def test_a_capture_of_a_graph_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    devices.refuse_capture()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="while a CUDA graph is captured"):
        devices.refuse_capture()
    with pytest.raises(RuntimeError, match="call optimizer.flush.. before the capture"):
        devices.refuse_capture_of_updates()


# ---- arguments for the core ----


class Recorder:
    """A set that notes its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda index, *more: self.calls.append((name, index, *more[-1:]))


@pytest.fixture
def on_a_device(monkeypatch):
    """Every tensor counts as a tensor on a device, whose current stream is 77."""
    used: list[torch.Tensor] = []
    monkeypatch.setattr(devices, "place_of", lambda tensor: CUDA)
    monkeypatch.setattr(devices, "current_stream", lambda tensor: 77)
    monkeypatch.setattr(devices, "used_by_current_stream", used.append)
    return used


@pytest.mark.parametrize(("places", "times"), [([HOST, HOST], 0), ([HOST, CUDA], 1)])
def test_torch_gives_back_what_it_keeps_of_a_device_before_a_set_takes_memory_there(
    monkeypatch, places, times
):
    emptied: list[bool] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    specs = [GradientSpec("x", (4,), c.FLOAT32, place=place) for place in places]
    assert devices.with_room(specs) is specs
    assert len(emptied) == times


def slot_of(parameter: torch.Tensor, compression: Any = Compression.none) -> GradientSlot:
    return GradientSlot(3, "weight", parameter, 0, compression, 1.0)


def test_a_gradient_that_was_not_computed_is_zeros_on_the_current_stream(on_a_device):
    slot, recorder = slot_of(torch.nn.Parameter(torch.ones(4))), Recorder()
    slot.submit_absent(recorder)
    assert recorder.calls == [("ready", 3, 77)]
    assert slot.parameter.grad.tolist() == [0.0] * 4
    assert slot.view.struct.data == slot.parameter.grad.data_ptr()
    assert (slot.view.struct.device_type, slot.view.struct.device_id) == CUDA


def test_a_gradient_that_is_cast_is_cast_on_the_device(on_a_device):
    slot, recorder = slot_of(torch.nn.Parameter(torch.ones(4)), Compression.fp16), Recorder()
    slot.parameter.grad = torch.full((4,), 0.5)
    slot.submit(recorder)
    slot.wait(recorder)
    assert recorder.calls == [("ready", 3, 77), ("wait_stream", 3, 77)]
    assert slot.spec().place == CUDA and slot.spec().dtype == c.FLOAT16
    assert slot.staging is not None and slot.staging.device == slot.parameter.device


@pytest.mark.parametrize(("waits", "noted"), [(77, 0), (78, 1)])
def test_torch_hears_of_a_gradient_that_another_stream_waits_for_than_the_one_it_came_on(
    on_a_device, monkeypatch, waits, noted
):
    slot, recorder = slot_of(torch.nn.Parameter(torch.ones(4))), Recorder()
    slot.parameter.grad = torch.full((4,), 0.5)
    slot.submit(recorder)
    monkeypatch.setattr(devices, "current_stream", lambda tensor: waits)
    slot.wait(recorder)
    assert recorder.calls == [("ready", 3, 77), ("wait_stream", 3, waits)]
    assert [one.data_ptr() for one in on_a_device] == [slot.parameter.grad.data_ptr()] * noted


def test_a_gradient_in_host_memory_has_no_stream():
    slot, recorder = slot_of(torch.nn.Parameter(torch.ones(4))), Recorder()
    slot.parameter.grad = torch.full((4,), 0.5)
    slot.submit(recorder)
    slot.wait(recorder)
    assert recorder.calls == [("ready", 3, None), ("wait", 3)]
    slot.parameter.grad = None
    slot.submit_absent(recorder)
    assert recorder.calls[2][:2] == ("absent", 3)
