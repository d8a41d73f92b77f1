"""The layout lock refuses every change that would break a plugin already built, and lets structs grow."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

BREAKING = {
    "a field moved": ("item.h", "  uint64_t rows;     /* the", "  uint32_t dtype_first; uint32_t pad; uint64_t rows; /* the"),
    "a field of another name": ("base.h", "  uint32_t rank;     /* this", "  uint32_t world_first; /* this"),
    "a field of another type": ("compressor.h", "  uint32_t period; ", "  int32_t period; "),
    "a parameter of another type": (
        "compressor.h",
        "(*plan)(void* instance, uint32_t phase, uint32_t world",
        "(*plan)(void* instance, uint64_t phase, uint32_t world",
    ),
    "a function with one more parameter": (
        "runtime.h",
        "penstock_step_end(penstock_set* set, uint32_t applied)",
        "penstock_step_end(penstock_set* set, uint32_t applied, uint32_t more)",
    ),
    "a constant of another value": ("base.h", "PENSTOCK_BFLOAT16 = 3", "PENSTOCK_BFLOAT16 = 14"),
    "a text array of another length": ("plugin.h", "char license[32]", "char license[40]"),
    "a tensor that grew inside items": (
        "base.h",
        "  uint32_t flags; /* 0 */\n} penstock_tensor;",
        "  uint32_t flags; /* 0 */\n  uint64_t more;\n} penstock_tensor;",
    ),
    "a field appended without a new minor version": (
        "host.h",
        "  const void* (*extension)(void* context, penstock_str id);",
        "  const void* (*extension)(void* context, penstock_str id);\n  uint64_t more;",
    ),
}


MINOR = int(re.search(r"#define PENSTOCK_ABI_MINOR (\d+)", (REPOSITORY / "sdk/include/penstock/base.h").read_text())[1])


def copy_headers(folder: Path) -> Path:
    shutil.copytree(REPOSITORY / "sdk/include/penstock", folder / "penstock")
    shutil.copy(REPOSITORY / "core/include/penstock/runtime.h", folder / "penstock")
    return folder


def change(folder: Path, header: str, before: str, after: str) -> None:
    path = folder / "penstock" / header
    text = path.read_text()
    assert text.count(before) >= 1, f"{header} no longer holds '{before}'; renew this test"
    path.write_text(text.replace(before, after, 1))


def lock_compiles(folder: Path, compiler: str, standard: str, suffix: str) -> bool:
    line = [compiler, f"-std={standard}", "-fsyntax-only", f"-I{folder}", REPOSITORY / f"tests/abi/layout_0_{MINOR}.{suffix}"]
    return subprocess.run(line, capture_output=True).returncode == 0


LANGUAGES = pytest.mark.parametrize(
    ("compiler", "standard", "suffix"), [("cc", "c11", "c"), ("c++", "c++17", "cpp")], ids=["C11", "C++17"]
)


@LANGUAGES
@pytest.mark.parametrize("kind", BREAKING)
def test_refuses(kind: str, compiler: str, standard: str, suffix: str, tmp_path: Path) -> None:
    folder = copy_headers(tmp_path)
    assert lock_compiles(folder, compiler, standard, suffix), "the untouched copy compiles"
    change(folder, *BREAKING[kind])
    assert not lock_compiles(folder, compiler, standard, suffix)


@LANGUAGES
def test_lets_structs_grow_under_a_new_minor_version(
    compiler: str, standard: str, suffix: str, tmp_path: Path
) -> None:
    folder = copy_headers(tmp_path)
    change(folder, *BREAKING["a field appended without a new minor version"])
    change(folder, "base.h", f"#define PENSTOCK_ABI_MINOR {MINOR}", f"#define PENSTOCK_ABI_MINOR {MINOR + 1}")
    assert lock_compiles(folder, compiler, standard, suffix)


def test_the_lock_that_is_checked_in_is_what_the_headers_give() -> None:
    line = [REPOSITORY / "tools/ci/make_layout_lock.py", "--check"]
    checked = subprocess.run(line, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
