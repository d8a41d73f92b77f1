"""The list of texts that users can see: joined strings are one text, comments and docstrings are none."""

from __future__ import annotations

import list_messages as ci


def texts(path, source: str) -> list[tuple[int, str]]:
    path.write_text(source, encoding="utf-8")
    return ci.texts_of(path)


def test_strings_that_the_compiler_joins_are_one_text(tmp_path):
    source = 'f(  // no "text of a comment at all"\n  "rank {} has left "\n  "the run", "short one");\n/* "nor this text of a comment" */\n'
    assert texts(tmp_path / "a.cpp", source) == [(2, "rank {} has left the run")]


def test_a_python_text_keeps_its_places_and_docstrings_are_left_out(tmp_path):
    source = '"""A docstring of four words."""\nraise ValueError(\n    f"rank {rank} has left " "the run"\n)\n'
    assert texts(tmp_path / "a.py", source) == [(3, "rank {} has left the run")]


def test_the_list_of_this_repository_has_a_known_error_and_no_text_of_a_test():
    rows = [(path, text) for path in ci.sources() for _, text in ci.texts_of(path)]
    assert any("two launchers contradict each other" in text for _, text in rows)
    assert not any("_test" in path.name or "tests" in path.parts for path, _ in rows)
