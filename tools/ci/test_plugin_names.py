"""Which texts of the core name a plugin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import plugin_names as ci  # noqa: E402

NAMES = {"topk", "mpi", "none", "momentum", "powersgd-alternating"}


def violations(line: str, path: str = "core/fit/rules.cpp") -> list[str]:
    return ci.check({path: f"{line}\n"}, NAMES)


@pytest.mark.parametrize(
    "line",
    [
        r'return failed("use compressor = \"topk\"");',
        r'"a run over mpi"',
        'if (name == "topk") return;',
        r'"use memory = \"momentum\""',
        r'"use scheme.transport = \"none\""',
        '"`powersgd-alternating` does"',
    ],
)
def test_a_text_that_names_a_plugin_is_refused_with_its_place(line: str) -> None:
    (violation,) = violations(line)
    assert violation.startswith('core/fit/rules.cpp:1: names the plugin "')
    assert "core/fit/offers.hpp" in violation


@pytest.mark.parametrize(
    "line",
    [
        '// such as "topk"',
        '#include "plugins/topk.hpp"',
        "topk(values);",
        r'"memory \"{}\" applies momentum"',
        '.initial = "none",',
        '"topkish, mpirun, MPI"',
    ],
)
def test_other_lines_are_not(line: str) -> None:
    assert violations(line) == []


@pytest.mark.parametrize("path", ["core/fit/rules_test.cpp", "core/plugin/testing.hpp", "tools/a.cpp", ci.DATA])
def test_tests_tools_and_the_data_may_name_them(path: str) -> None:
    assert violations('"topk"', path) == []


def test_plugins_are_what_their_builds_say() -> None:
    lists = {"plugins/compressors/a/CMakeLists.txt": "penstock_add_plugin(compressor topk\n  SOURCES a.cpp)\n", "CMakeLists.txt": ""}
    assert ci.plugin_names(lists) == {"topk"}


def test_the_core_names_none() -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, root / "tools/ci/check_includes.py"], capture_output=True, text=True, check=False)
    assert "names the plugin" not in done.stdout, done.stdout
    names = ci.plugin_names({str(path.relative_to(root)): path.read_text() for path in root.glob("plugins/*/*/CMakeLists.txt")})
    assert names >= {"topk", "residual", "mpi", "fusion"}
