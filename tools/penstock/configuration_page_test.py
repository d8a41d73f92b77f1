"""docs/configuration.md names every key that the reader of TOML files knows, and what it shows is accepted."""

import pathlib
import re
import subprocess

import pytest

from command_test import ROOT, penstock

PAGE = (ROOT / "docs/configuration.md").read_text()


def table_of(section: str) -> dict[str, str]:
    """The first two columns of the section's tables."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)`[^|]*\| ([^|]*) \|", text, re.MULTILINE))


def keys_known(pattern: str) -> set[str]:
    """The keys in the lists of core/config that match: what the reader of files accepts."""
    ran = subprocess.run(["grep", "-rhPzo", pattern, "core/config"], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(re.findall(r'"(\w+)"', ran.stdout))


@pytest.mark.parametrize(("section", "where"), [
    ("`[scheme]`", r"(?s)kSchemeKeys = \{[^}]*\}"),
    ("`[runtime]`", r'(?s)"runtime",\s*\{[^}]*\}'),
])
def test_every_key_is_named_and_none_that_is_not_known(section, where):
    known = keys_known(where) - {"runtime"}
    assert len(known) >= 7
    assert set(table_of(section)) == known


def test_rules_and_matches_are_named():
    known = keys_known(r'(?s)check_keys\(\*table, title, \{"match"[^}]*\}') | keys_known(r'(?s)check_keys\(\*table, title, \{"name"[^}]*\}')
    named = {key for row in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", PAGE.split("\n## `[[rule]]`\n")[1].split("\n## ")[0], re.MULTILINE)
             for key in re.findall(r"`(\w+)`", row)}
    assert named == known


def test_the_examples_are_accepted(tmp_path: pathlib.Path):
    for number, example in enumerate(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)):
        file = tmp_path / f"example{number}.toml"
        file.write_text(example)
        ran = penstock("config", "check", file)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_defaults_of_the_runtime_are_accepted(tmp_path: pathlib.Path):
    file = tmp_path / "defaults.toml"
    defaults = {key: value.strip("`") for key, value in table_of("`[runtime]`").items() if value.startswith("`")}
    assert len(defaults) >= 8
    file.write_text("[runtime]\n" + "".join(f"{key} = {value}\n" for key, value in defaults.items()))
    ran = penstock("config", "check", file)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(("value", "expected"), [("0", "at least 1"), ("257", "at most 256"), ('"all"', "integer")])
def test_a_number_of_threads_out_of_range_is_an_error_with_its_place(value, expected, tmp_path: pathlib.Path):
    file = tmp_path / "threads.toml"
    file.write_text(f"[runtime]\nworker_threads = {value}\n")
    ran = penstock("config", "check", file)
    assert ran.returncode != 0
    assert f"{file.name}:2:1" in ran.stdout + ran.stderr and expected in ran.stdout + ran.stderr
