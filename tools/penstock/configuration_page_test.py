"""docs/configuration.md names every key that the reader of TOML files knows, and what it shows is accepted."""

import json
import pathlib
import re

import pytest

from command_test import ROOT, penstock

pytestmark = pytest.mark.pages
PAGE = (ROOT / "docs/configuration.md").read_text()


KEYS = json.loads(penstock("config", "describe", "--json").stdout)
SECTIONS = {"[scheme]": ["[scheme]"], "[[rule]]": ["[[rule]]", "match"], "[[switch]]": ["[[switch]]"], "[transport]": ["[transport]"],
            "[runtime]": ["[runtime]"]}


def row_of(key: dict[str, str]) -> str:
    """The row of the page for what `penstock config describe` says of a key."""
    default = key["default"]
    if re.match(r'["\d]|true|false', default):
        default = f"`{default}`"
    values = key["range"]
    if key["type"] == "one of":
        values = ", ".join(f"`{value}`" for value in re.findall(r'"\w+"', values))
    else:
        values = ", ".join(filter(None, [key["type"], values]))
    return f"| `{key['key']}` | {default} | {values} | {key['summary']} |"


@pytest.mark.parametrize("section", SECTIONS)
def test_the_tables_are_what_the_command_describes(section):
    text = PAGE.split(f"\n## `{section}`\n")[1].split("\n## ")[0]
    shown = re.findall(r"^\| `.*\|$", text, re.MULTILINE)
    assert shown == [row_of(key) for table in SECTIONS[section] for key in KEYS if key["table"] == table]


def test_every_table_has_its_place_on_the_page():
    assert {key["table"] for key in KEYS} == {table for tables in SECTIONS.values() for table in tables}


def test_the_page_says_on_which_keys_of_the_runtime_ranks_must_agree():
    sentence = re.search(r"Ranks must agree on (.*?), and on everything", PAGE, re.DOTALL)[1]
    assert set(re.findall(r"`(\w+)`", sentence)) == {key["key"] for key in KEYS if key["equal_on_all_ranks"]}


def test_people_get_the_same_as_a_table():
    text = penstock("config", "describe").stdout
    for key in KEYS:
        assert re.search(rf"^{key['key']} .*{re.escape(key['summary'])}$", text, re.MULTILINE), key


def test_the_examples_are_accepted(tmp_path: pathlib.Path):
    for number, example in enumerate(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)):
        file = tmp_path / f"example{number}.toml"
        file.write_text(example)
        ran = penstock("config", "check", file)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_defaults_of_the_runtime_are_accepted(tmp_path: pathlib.Path):
    file = tmp_path / "defaults.toml"
    defaults = {key["key"]: key["default"] for key in KEYS
                if key["table"] == "[runtime]" and re.match(r'["\d]|true|false', key["default"])}
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
