"""What counts as a line of code."""

from __future__ import annotations

from pathlib import Path

import count_lines
import pytest


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", 0),
        ("int a;\n\n  \nint b;\n", 2),
        ("// a comment\nint a;  // and one behind\n", 1),
        ("/* one\n   two */\nint a;\n", 1),
        ("int a; /* begins\n ends */ int b;\n", 2),
        ('const char* url = "http://x";\n', 1),
        ('const char* text = R"(\n// no comment\n\n)";\n', 3),
        ("char quote = '\"';  // a comment with \" in it\nint a;\n", 2),
    ],
)
def test_comments_and_blank_lines_are_none(text: str, lines: int) -> None:
    assert count_lines.code_lines(text) == lines


def test_rooms_are_counted_without_their_tests(tmp_path: Path) -> None:
    room = tmp_path / "core/base"
    room.mkdir(parents=True)
    (room / "a.hpp").write_text("int a();\n", encoding="utf-8")
    (room / "a.cpp").write_text('#include "a.hpp"\nint a() { return 1; }\n', encoding="utf-8")
    (room / "a_test.cpp").write_text("int b;\n", encoding="utf-8")
    assert count_lines.by_room(tmp_path, ["core"]) == {"core/base": 3}
