"""Goals and the table, from figures that are made up."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOM = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOM.parents[1]))

from benches.cuda import figures, goals  # noqa: E402


def kernel(what: str, n_bytes: float, ms: float, of_copy: float = 0.9) -> dict[str, Any]:
    return {"what": what, "bytes": n_bytes, "ms": [ms, ms, ms], "fraction_of_copy": of_copy}


def scheme(name: str, **changes: Any) -> dict[str, Any]:
    device = {
        "launches": 20.0, "kernels_ms": 0.65, "copies_ms": 0.1, "copied_bytes": 1e6, "overlap": 0.8, "waits": 0.0, "allocations": 0.0,
        "calls": {}, "unseen": "",
    }  # fmt: skip
    return {
        "scheme": name, "step_ms": [110.0, 109.0, 112.0], "not_hidden_ms": [10.0, 9.0, 12.0], "buckets": 2, "gradients": 161,
        "on_device": 161, "why_staged": "", "device": {**device, **changes}, "why_no_device_figures": "",
    }  # fmt: skip


def steps(*rows: dict[str, Any], ranks: int = 1) -> dict[str, Any]:
    model = {"model": "resnet50", "gradients": 161, "bytes": 1, "compute_ms": [100.0] * 3, "copy_ms": [0.1] * 3, "schemes": list(rows)}
    return {"device": "NVIDIA H100", "torch": "2.11", "ranks": ranks, "models": [model], "ddp": {"skipped": "there is one device"}}


@pytest.fixture
def parts() -> dict[str, Any]:
    """All goals are met."""
    size = 4.0 * goals.NUMEL
    rows = [kernel(goals.READ, size, 0.2), kernel(goals.COMPACTION, size * 1.02, 0.22), kernel(goals.EXACT, size, 0.4)]
    rows += [kernel(goals.BY_CUB, size, 5.0), *(kernel(what, size, 0.5) for what in goals.QUANTISERS)]
    torch_row = {"numel": goals.NUMEL, "density": goals.DENSITY, "torch_over_ours": [4.0, 3.9, 4.1]}
    ddp = {"plain_over_hook": [0.99, 0.98, 1.0]}
    return {
        "kernels": {"device": "NVIDIA H100", "numel": goals.NUMEL, "rounds": 9, "rows": rows}, "torch_topk": {"rows": [torch_row]},
        "small_step": {"bytes": 4096, "rows": [{"scheme": "none", "us": [900.0, 800.0, 1000.0], "added_us": 700.0}]},
        "steps_1": steps(scheme("topk-residual")), "steps_2": {**steps(scheme("topk-residual"), ranks=2), "ddp": ddp},
    }  # fmt: skip


def goal(parts: dict[str, Any], words: str) -> goals.Goal:
    (found,) = [one for one in goals.goals(parts) if words in one.goal]
    return found


def test_figures_that_reach_all_goals_meet_all(parts):
    assert [one.met for one in goals.goals(parts)] == [True] * len(goals.GOALS)


def test_a_name_of_a_row_is_one_that_the_benchmark_prints():
    sources = "".join(path.read_text() for suffix in ("cpp", "cu") for path in ROOM.glob(f"*.{suffix}"))
    for name in (goals.READ, goals.COMPACTION, goals.BY_CUB, *goals.QUANTISERS):
        assert f'"{name}"' in sources, name
    begin, _, density = goals.EXACT.partition(", ")
    assert f'"{begin}, "' in sources and f'"{density}"' in sources


@pytest.mark.parametrize(
    ("row", "change", "words", "said"),
    [
        (goals.COMPACTION, {"ms": [0.4, 0.4, 0.4]}, "compaction", "51%"),
        (goals.EXACT, {"ms": [0.5, 0.5, 0.5]}, "2.2 reads", "2.50 reads"),
        (goals.BY_CUB, {"ms": [0.41, 0.41, 0.41]}, "CUB", "1.0"),
        (goals.QUANTISERS[3], {"fraction_of_copy": 0.5}, "quantisers", f"50%, the slowest: {goals.QUANTISERS[3]}"),
    ],
)
def test_a_kernel_that_is_too_slow_misses_its_goal(parts, row, change, words, said):
    next(one for one in parts["kernels"]["rows"] if one["what"] == row).update(change)
    found = goal(parts, words)
    assert found.met is False and said in found.measured


@pytest.mark.parametrize(
    ("change", "words", "said"),
    [
        ({"launches": 26.0}, "launches a bucket", "13 at the most (efsign, resnet50, two ranks)"),
        ({"waits": 0.25, "calls": {"cudaStreamSynchronize": 1}}, "0 waits", "0.25 (efsign, resnet50, two ranks: cudaStreamSynchronize)"),
        ({"allocations": 1.0, "calls": {"cudaMalloc": 4}}, "0 allocations", "1 (efsign, resnet50, two ranks: cudaMalloc)"),
    ],
)
def test_one_scheme_on_two_ranks_is_enough_to_miss(parts, change, words, said):
    parts["steps_2"]["models"][0]["schemes"].append(scheme("efsign", **change))
    found = goal(parts, words)
    assert found.met is False and found.measured == said


def test_encode_and_decode_are_held_against_copies_and_launches_of_one_rank(parts):
    parts["steps_2"]["models"][0]["schemes"][0]["device"]["kernels_ms"] = 100.0  # the ranks share the device
    assert goal(parts, "encode and decode").met
    parts["steps_1"]["models"][0]["schemes"][0]["device"]["kernels_ms"] = 6 * 0.1 + 20 * 0.005 + 0.01
    assert goal(parts, "encode and decode").met is False


def test_what_was_not_measured_is_neither_met_nor_missed_and_says_why(parts):
    for name in parts:
        parts[name] = {"skipped": "no CUDA device"}
    assert {(one.met, one.measured) for one in goals.goals(parts)} == {(None, "not measured: no CUDA device")}
    assert all(one.met is None for one in goals.goals({}))


def test_steps_on_the_cpu_are_no_figures_of_a_device(parts):
    for name in goals.STEPS:
        row = parts[name]["models"][0]["schemes"][0]
        row.update(device=None, why_no_device_figures="nothing was on a device")
    found = goal(parts, "0 waits")
    assert found.met is None and found.measured == "not measured: nothing was on a device"


def test_counts_that_the_profiler_hid_are_not_zeros(parts):
    hidden = {"waits": None, "allocations": None, "unseen": "not the call that queued it"}
    other = copy.deepcopy(parts)
    for name in goals.STEPS:
        other[name]["models"][0]["schemes"][0]["device"].update(hidden)
    assert goal(other, "0 waits").measured == "not measured: not the call that queued it"
    parts["steps_1"]["models"][0]["schemes"][0]["device"].update(hidden)
    assert goal(parts, "0 waits").measured == "0; not seen with 1 of 2"


def test_another_size_does_not_stand_for_a_hundred_million(parts):
    parts["kernels"]["numel"] = 1 << 26
    assert goal(parts, "2.2 reads").measured == "not measured: measured with 67108864 entries"


# ---- the file and the table ----


def gather(folder: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    kept = folder / "figures.json", folder / "figures.md"
    command = [sys.executable, ROOM / "figures.py", folder, "--json", kept[0], "--markdown", kept[1], *arguments]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return json.loads(kept[0].read_text()), kept[1].read_text()


def test_parts_of_a_folder_become_one_file_and_a_table(parts, tmp_path):
    for name, part in parts.items():
        (tmp_path / f"{name}.json").write_text(f"a launcher's words\n{json.dumps(part)}\n")
    (tmp_path / "nccl.txt").write_text("skipped: no libnccl\n")
    (tmp_path / "check.txt").write_text("selection: as on the CPU\nfailed: status 1\n")
    found, table = gather(tmp_path)
    assert found["device"] == "NVIDIA H100" and found["parts"] == parts
    assert [one["met"] for one in found["goals"]] == [True] * len(goals.GOALS)
    assert table.startswith("Measured with `tools/gpu-check`: NVIDIA H100") and table.count("| met |") == len(goals.GOALS)
    assert "| topk-residual | 2 | 110.00 (109.00 to 112.00) |" in table
    assert "one gradient of 4096 bytes, one rank, and what its exchange adds: none 900 us (+700)." in table
    assert "Failed: check." in table and "nccl: no libnccl" in table


def test_a_part_that_said_why_it_is_skipped_keeps_its_reason(tmp_path):
    (tmp_path / "steps_1.txt").write_text("skipped: there is no build/release/lib/libpenstock.so.0\n")
    (tmp_path / "kernels.json").write_text('{"skipped": "no CUDA device"}\n')
    found, table = gather(tmp_path)
    assert found["parts"]["steps_1"]["skipped"].startswith("there is no build/release")
    assert found["parts"]["kernels"]["skipped"] == "no CUDA device"
    assert found["parts"]["steps_2"]["skipped"] == figures.NOT_RUN
    assert table.startswith("Not run on a device") and "no CUDA device" in table


def test_a_row_whose_result_was_wrong_meets_no_goal_and_is_named(parts, tmp_path):
    next(one for one in parts["kernels"]["rows"] if one["what"] == goals.COMPACTION)["wrong"] = "the result is not the CPU's"
    found = goal(parts, "compaction")
    assert found.met is None and "the result is not the CPU's" in found.measured
    (tmp_path / "kernels.json").write_text(json.dumps(parts["kernels"]) + "\n")
    _, table = gather(tmp_path)
    assert f"| {goals.COMPACTION} | 0.220 (0.220 to 0.220) | the result is not the CPU's |" in table


def test_what_the_machine_is_stands_beside_the_figures(tmp_path):
    machine = {"device": "NVIDIA H100", "driver": "580.1", "cuda": "13.0", "torch": "2.11", "lines": ["one"]}
    (tmp_path / "machine.json").write_text(json.dumps(machine))
    found, table = gather(tmp_path)
    assert found["machine"] == ["one"] and "NVIDIA H100, driver 580.1, CUDA 13.0, torch 2.11" in table
