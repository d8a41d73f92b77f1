"""A number on two pages is equal on both, and the figures of commands are equal to the commands' output."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from page import ROOT

PENSTOCK = ROOT / "build/release/bin/penstock"


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def rows_of(text: str, heading: str) -> list[list[str]]:
    """The rows of the table that begins with a column of this name."""
    table = text.split(f"\n| {heading} |", 1)[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize("row", rows_of(text_of("docs/guide/which-scheme.md"), "scheme"), ids=lambda row: row[0].strip("`").split("`")[0])
def test_the_bytes_of_a_scheme_are_those_of_the_command(row):
    name, moved, less, wins = re.match(r"`([\w-]+)`", row[0])[1], *row[1:]
    ran = subprocess.run([PENSTOCK, "config", "traffic", f"conf/{name}.toml", "--ranks", "16", "--json"], cwd=ROOT, capture_output=True, text=True, check=True)
    last = json.loads(ran.stdout)[-1]
    assert float(moved.removesuffix(" MB")) == pytest.approx(last["moved_bytes"] / 1e6, rel=0.02)
    assert float(less.removesuffix(" x")) == pytest.approx(last["dense_moved_bytes"] / last["moved_bytes"], rel=0.02)
    if wins:
        assert wins.removesuffix(" ranks") == last["wins_up_to_ranks"]


def test_the_readme_is_short():
    assert len(text_of("README.md").splitlines()) <= 150


def test_the_page_of_the_abi_names_its_version():
    header = text_of("sdk/include/penstock/base.h")
    major, minor = (re.search(rf"define PENSTOCK_ABI_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR"))
    assert f"\nABI {major}.{minor}. " in text_of("docs/abi.md")


def test_every_plugin_and_every_scheme_stands_on_the_page_of_systems():
    page = text_of("docs/systems.md")
    plugins = {folder.parent.relative_to(ROOT).as_posix() for folder in ROOT.glob("plugins/*/*/README.md")}
    assert {plugin for plugin in plugins if f"(../{plugin}/README.md)" not in page} == set()
    page += text_of("conf/README.md")
    assert {file.name for file in ROOT.glob("conf/*.toml") if f"{file.name})" not in page} == set()


def test_each_word_of_the_glossary_stands_in_the_code():
    rows = rows_of(text_of("docs/architecture.md"), "word")
    assert len(rows) >= 25
    sources = ["core/*.hpp", "core/*.h", "sdk/*.hpp", "sdk/*.h", "frontends/python/penstock/*.py"]
    headers = subprocess.run(["git", "ls-files", *sources], cwd=ROOT, capture_output=True, text=True, check=True)
    names = set(re.findall(r"\w+", " ".join(text_of(path) for path in headers.stdout.split())))
    missing = [name for _, code, _ in rows[1:] for name in re.findall(r"\w+", code) if name not in names]
    assert not missing


def test_every_stage_of_a_program_stands_on_the_page_of_architecture():
    sources = [path.read_text() for path in (ROOT / "core/bucket").rglob("*.?pp") if not path.stem.endswith("_test")]
    stages = {name for text in sources for name in re.findall(r'Stage(?:OfRound)?\([^"()]*"([a-z ]+)"', text)}
    text = text_of("docs/architecture.md").split("\n### Stages", 1)[1].split("\n### ", 1)[0]
    assert len(stages) > 30
    assert {name for name in stages if f"`{name}`" not in text} == set()
