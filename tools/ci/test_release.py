"""What a release changes, and when it is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import release

FILES = {
    "CMakeLists.txt": "project(Penstock VERSION 0.1.0 LANGUAGES C CXX)\n",
    "frontends/python/penstock/__init__.py": '__version__ = "0.1.0"\n',
    "CITATION.cff": "cff-version: 1.2.0\nversion: 0.1.0\n",
    "docs/install.md": "pip install penstock-0.1.0-py3-none-manylinux_2_35_x86_64.whl\n",
    "CHANGELOG.md": "# Changelog\n\n## Unreleased: 0.2.0 (plugin ABI 0.11)\n\nText.\n",
    "sdk/include/penstock/base.h": "#define PENSTOCK_ABI_MAJOR 0\n#define PENSTOCK_ABI_MINOR 11\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    for words in (("init", "-q"), ("add", "."), ("-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x")):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    return tmp_path


def test_a_dry_run_shows_every_step_and_changes_nothing(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(["0.2.0", "--date", "2027-01-02", "--dry-run"], checkout) == 0
    said = capsys.readouterr().out
    for line in (
        "+project(Penstock VERSION 0.2.0 LANGUAGES C CXX)",
        '+__version__ = "0.2.0"',
        "+version: 0.2.0",
        "+pip install penstock-0.2.0-py3-none-manylinux_2_35_x86_64.whl",
        "+## 0.2.0, 2027-01-02 (plugin ABI 0.11)",
        "would run: tools/test --all --fresh",
        "would run: tools/wheel --python python3.9",
        "would run: git tag -a v0.2.0 -m 'Penstock 0.2.0'",
        "nothing was changed",
    ):
        assert line in said.splitlines(), line
    assert all((checkout / name).read_text() == text for name, text in FILES.items())


@pytest.mark.parametrize(
    ("name", "old", "new", "version", "says"),
    [
        ("CHANGELOG.md", "Unreleased: ", "", "0.2.0", "write the entry first"),
        ("CHANGELOG.md", "0.2.0", "0.3.0", "0.2.0", "unreleased entry is 0.3.0, not 0.2.0"),
        ("CHANGELOG.md", "ABI 0.11", "ABI 0.10", "0.2.0", "names plugin ABI 0.10, the headers have 0.11"),
        ("CITATION.cff", "\nversion", "\nno", "0.2.0", "CITATION.cff names the version 0 times"),
        ("CMakeLists.txt", "x", "x", "0.2", "expected three numbers"),
    ],
)
def test_what_does_not_fit_is_refused(checkout: Path, capsys, name: str, old: str, new: str, version: str, says: str) -> None:
    file = checkout / name
    file.write_text(file.read_text().replace(old, new), encoding="utf-8")
    assert release.main([version, "--dry-run"], checkout) == 1
    assert says in capsys.readouterr().err


def test_a_version_that_is_not_newer_than_a_tag_is_refused(checkout: Path, capsys) -> None:
    subprocess.run(["git", "-C", str(checkout), "tag", "v0.10.0"], check=True)
    assert release.main(["0.2.0", "--dry-run"], checkout) == 1
    assert "not newer than the tag v0.10.0" in capsys.readouterr().err


def test_a_release_of_a_changed_checkout_is_refused(checkout: Path, capsys) -> None:
    (checkout / "new").write_text("", encoding="utf-8")
    assert release.main(["0.2.0"], checkout) == 1
    assert "not committed" in capsys.readouterr().err


def test_every_place_of_this_repository_names_the_version_once() -> None:
    for name, pattern in release.PLACES:
        assert "98.0.0" in release.bumped(name, pattern, (release.ROOT / name).read_text(encoding="utf-8"), "98.0.0")
    assert release.abi_of((release.ROOT / "sdk/include/penstock/base.h").read_text(encoding="utf-8"))
