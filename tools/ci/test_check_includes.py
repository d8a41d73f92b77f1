"""The include rules, one by one, and what counts as a test, a long file and a header of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_includes as ci  # noqa: E402

SDK = {
    "sdk/include/penstock/base.h": "",
    "sdk/kernels/select.hpp": "",
    "sdk/methods/sparse.hpp": "",
    "sdk/planning/forecast.hpp": "",
    "sdk/testing/rig.hpp": "",
    "core/include/penstock/runtime.h": "",
    "core/base/status.hpp": "",
    "core/plan/plan.hpp": "",
    "core/bucket/engine.hpp": "",
    "plugins/compressors/topk/topk.hpp": "",
    "tests/support/coded.hpp": "",
    "core/control/testing.hpp": "",
}


def violations(path: str, line: str) -> list[str]:
    """Of a file with a single include, among a few files of each room."""
    return ci.check({**SDK, path: f"{line}\n"})


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("core/comm/channel.cpp", '#include "core/base/status.hpp"'),
        ("core/comm/channel.cpp", '#include "core/plan/plan.hpp"'),
        ("core/comm/channel.cpp", "#include <penstock/runtime.h>"),
        ("core/comm/channel.cpp", "#include <kernels/select.hpp>"),
        ("core/library/door.cpp", '#include "core/bucket/engine.hpp"'),
        ("core/comm/channel_test.cpp", '#include "core/bucket/engine.hpp"'),
        ("core/comm/channel_test.cpp", '#include "core/control/testing.hpp"'),
        ("sdk/planning/timeline.cpp", '#include "planning/forecast.hpp"'),
        ("sdk/kernels/cpu/select.cpp", "#include <penstock/base.h>"),
        ("sdk/methods/sparse.hpp", "#include <kernels/select.hpp>"),
        ("plugins/compressors/topk/topk.cpp", '#include "topk.hpp"'),
        ("plugins/compressors/topk/topk.cpp", "#include <planning/forecast.hpp>"),
        ("plugins/compressors/topk/topk_test.cpp", "#include <support/coded.hpp>"),
        ("plugins/collectives/mpi/library.hpp", "#include <mpi.h>"),
        ("frontends/libtorch/optimizer.cpp", "#include <penstock/runtime.h>"),
        ("frontends/libtorch/optimizer.cpp", "#include <torch/torch.h>"),
        ("plugins/compressors/topk/topk_test.cpp", "#include <testing/rig.hpp>"),
        ("tools/penstock/check/compressor.cpp", "#include <testing/rig.hpp>"),
        ("tools/penstock/run.cpp", '#include "core/bucket/engine.hpp"'),
        ("tests/abi/layout.cpp", '#include "core/bucket/engine.hpp"'),
        ("core/base/status.cpp", "#include <vector>"),
    ],
)
def test_what_is_allowed_passes(path: str, line: str) -> None:
    assert violations(path, line) == []


@pytest.mark.parametrize(
    ("path", "line", "reason"),
    [
        ("core/base/status.cpp", '#include "core/plan/plan.hpp"', "plan comes after base"),
        ("core/plan/plan.cpp", '#include "core/bucket/engine.hpp"', "bucket comes after plan"),
        ("core/strange/new.cpp", '#include "core/base/status.hpp"', "not both rooms"),
        ("core/comm/channel.cpp", '#include "plugins/compressors/topk/topk.hpp"', "core and sdk only"),
        ("core/comm/channel.cpp", '#include "core/control/testing.hpp"', "only tests include tests"),
        ("core/comm/channel.cpp", "#include <support/coded.hpp>", "only tests include tests"),
        ("core/comm/channel.cpp", "#include <testing/rig.hpp>", "only tests and tools"),
        ("plugins/compressors/topk/topk.cpp", "#include <testing/rig.hpp>", "only tests and tools"),
        ("core/comm/channel.cpp", "#include <boost/dll/shared_library.hpp>", "core/plugin only"),
        ("core/comm/channel.cpp", '#include "nowhere.hpp"', "no such file"),
        ("sdk/planning/timeline.cpp", '#include "core/base/status.hpp"', "nothing outside itself"),
        ("sdk/include/penstock/item.h", "#include <kernels/select.hpp>", "stands alone"),
        ("sdk/kernels/select.hpp", "#include <methods/sparse.hpp>", "sdk/kernels does not use sdk/methods"),
        ("sdk/planning/forecast.hpp", "#include <kernels/select.hpp>", "sdk/planning does not use sdk/kernels"),
        ("plugins/memories/dgc/dgc.cpp", '#include "../../compressors/topk/topk.hpp"', "own folder only"),
        ("plugins/memories/dgc/dgc.cpp", '#include "core/base/status.hpp"', "own folder only"),
        ("plugins/memories/dgc/dgc.cpp", "#include <penstock/runtime.h>", "own folder only"),
        ("plugins/memories/dgc/dgc.cpp", "#include <torch/torch.h>", "frontends/libtorch only"),
        ("frontends/libtorch/optimizer.cpp", '#include "core/base/status.hpp"', "core/include and sdk/include only"),
        ("frontends/libtorch/optimizer.cpp", "#include <kernels/select.hpp>", "core/include only"),
        ("tools/penstock/run.cpp", '#include "plugins/compressors/topk/topk.hpp"', "core and sdk only"),
    ],
)
def test_what_is_not_allowed_is_named_with_file_and_line(path: str, line: str, reason: str) -> None:
    found = violations(path, f"// first line\n{line}")
    assert len(found) == 1
    assert found[0].startswith(f"{path}:2: includes ")
    assert reason in found[0]


def test_every_room_of_the_core_may_use_exactly_those_before_it() -> None:
    files = {f"core/{room}/a.hpp": "" for room in ci.CORE_ROOMS}
    for i, source in enumerate(ci.CORE_ROOMS):
        for j, target in enumerate(ci.CORE_ROOMS):
            text = {**files, f"core/{source}/b.cpp": f'#include "core/{target}/a.hpp"\n'}
            assert (ci.check(text) == []) == (j <= i), (source, target)


def test_files_may_have_400_lines_and_no_more() -> None:
    assert ci.check({"core/base/long.cpp": "//\n" * 400}) == []
    assert "has 401 lines" in ci.check({"core/base/long.cpp": "//\n" * 401})[0]
    assert "has 401 lines" in ci.check({"tools/long.py": "#\n" * 401})[0]
    assert ci.check({"docs/long.md": "text\n" * 4000}) == []


def test_generated_files_may_be_long() -> None:
    assert ci.check({"tests/abi/lock.c": "/* Written by tools/ci/make.py. */\n" + "//\n" * 1000}) == []
    assert len(ci.check({"tests/abi/lock.c": "//\n" * 1000 + "/* Written by tools/ci/make.py. */\n"})) == 1


def test_the_command_fails_on_a_tree_with_a_violation_and_passes_without(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "core/base").mkdir(parents=True)
    (tmp_path / "core/plan").mkdir()
    (tmp_path / "core/plan/plan.hpp").write_text("#pragma once\n", encoding="utf-8")
    source = tmp_path / "core/base/status.cpp"
    source.with_suffix(".hpp").write_text("#pragma once\n", encoding="utf-8")
    command = [sys.executable, ci.__file__, "--root", str(tmp_path)]

    source.write_text('#include "core/plan/plan.hpp"\n', encoding="utf-8")
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "core/base/status.cpp:1: includes core/plan/plan.hpp" in failed.stdout

    source.write_text("#include <vector>\n", encoding="utf-8")
    passed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert passed.returncode == 0
    assert "3 files, 0 violations" in passed.stdout


def circles(modules: dict[str, str]) -> list[str]:
    """Violations among modules of Python's frontend, given as name -> text."""
    return ci.check({f"frontends/python/penstock/{name}.py": text for name, text in modules.items()})


@pytest.mark.parametrize(
    "back",
    [
        "import penstock.one",
        "from penstock import one",
        "from penstock.one import thing",
        "def later():\n    from penstock.one import thing",
        "if TYPE_CHECKING:\n    from penstock.one import thing",
    ],
)
def test_modules_that_import_each_other_are_a_circle(back: str) -> None:
    found = circles({"one": "from penstock import two", "two": back})
    assert len(found) == 1
    assert found[0].startswith("penstock.one -> penstock.two -> penstock.one: ")


def test_a_circle_of_three_is_told_once_by_its_way() -> None:
    found = circles({
        "a": "from penstock.b import x",
        "b": "import os\nfrom penstock.c import y",
        "c": "from penstock.a import z\nfrom penstock.b import x",
        "d": "from penstock import a, b, c",
    })  # fmt: skip
    assert [line.split(":")[0] for line in found] == ["penstock.a -> penstock.b -> penstock.c -> penstock.a"]


def test_a_package_that_is_imported_for_its_module_is_no_circle() -> None:
    assert circles({"__init__": "", "torch/__init__": "from penstock.torch.one import thing", "torch/one": "from penstock.torch import two", "torch/two": ""}) == []  # fmt: skip
