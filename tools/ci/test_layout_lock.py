"""The layout lock refuses every change that would break a plugin already built, and is written once per minor version."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tools/ci"))

import abi_headers  # noqa: E402
import make_layout_lock  # noqa: E402

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
        "penstock_step_end(penstock_set* set, uint32_t outcome)",
        "penstock_step_end(penstock_set* set, uint32_t outcome, uint32_t more)",
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
    line = [compiler, f"-std={standard}", "-fsyntax-only", f"-I{folder}", REPOSITORY / f"tests/abi/layout_lock.{suffix}"]
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


@pytest.fixture
def generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The generator works on a copy of the headers in this folder, and on a lock in it that fits them."""
    folder = copy_headers(tmp_path)
    monkeypatch.setattr(abi_headers, "SDK_HEADERS", folder / "penstock")
    monkeypatch.setattr(make_layout_lock, "SDK_HEADERS", folder / "penstock")
    monkeypatch.setattr(make_layout_lock, "INCLUDES", [folder])
    monkeypatch.setattr(make_layout_lock, "REPOSITORY", folder)
    monkeypatch.setattr(make_layout_lock, "LOCK", folder / "layout.h")
    assert run_generator(monkeypatch) == 0
    return folder


def run_generator(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["make_layout_lock", *arguments])
    return make_layout_lock.main()


def test_a_lock_is_written_anew_when_the_minor_version_is_raised(
    generator: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_generator(monkeypatch, "--check") == 0
    change(generator, *BREAKING["a field appended without a new minor version"])
    assert run_generator(monkeypatch, "--check") == 1
    assert "raise PENSTOCK_ABI_MINOR" in capsys.readouterr().err
    before = (generator / "layout.h").read_text()
    assert run_generator(monkeypatch) == 1, "the same minor version has one lock"
    assert (generator / "layout.h").read_text() == before

    change(generator, "base.h", f"#define PENSTOCK_ABI_MINOR {MINOR}", f"#define PENSTOCK_ABI_MINOR {MINOR + 1}")
    assert run_generator(monkeypatch, "--check") == 1
    assert "of another minor version" in capsys.readouterr().err
    assert run_generator(monkeypatch) == 0
    assert run_generator(monkeypatch, "--check") == 0
    assert f"Layout lock of ABI 0.{MINOR + 1}" in (generator / "layout.h").read_text()


def test_a_lock_that_is_missing_is_named(
    generator: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (generator / "layout.h").unlink()
    assert run_generator(monkeypatch, "--check") == 1
    assert "layout.h is missing" in capsys.readouterr().err


def test_the_lock_that_is_checked_in_is_what_the_headers_give() -> None:
    line = [REPOSITORY / "tools/ci/make_layout_lock.py", "--check"]
    checked = subprocess.run(line, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
