"""What makes a page hard to read, wide, or not to be found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import check_pages as ci
import pytest

PLAIN = "# Title\n\nA rank sends its gradients. Each rank adds the gradients of all ranks.\n"
RIDDLE = "What goes so is told to whoever waits, and those of the others are kept.\n"


def found_in(pages: dict[str, str], *, files: tuple[str, ...] = ()) -> list[str]:
    """Violations among pages, with an index that leads to all of them."""
    index = "".join(f"[{page}](../{page})\n" for page in pages)
    pages = {ci.INDEX: f"# Index\n\n{index}", **pages}
    return ci.check(pages, ci.with_folders({*pages, *files}))


@pytest.fixture(autouse=True)
def no_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ci, "NOT_YET", ())
    monkeypatch.setattr(ci, "WIDE", ())
    monkeypatch.setattr(ci, "WENT", {})


def test_sentences_with_a_subject_are_plain() -> None:
    assert found_in({"README.md": PLAIN * 20}) == []


def test_clauses_without_a_subject_and_pronouns_without_a_noun_are_counted() -> None:
    assert ci.plainness(RIDDLE, "a.md")[1] == 3
    assert "3 places in 15 words" in found_in({"README.md": RIDDLE})[0]


def test_code_tables_and_comments_are_not_prose() -> None:
    text = f"<!-- {RIDDLE}-->\n```text\n{RIDDLE}```\n\n| {RIDDLE.strip()} |\n\n    {RIDDLE}"
    assert ci.plainness(text, "a.md") == (0, 0)


def test_parts_that_a_program_writes_are_not_prose_but_have_headings() -> None:
    text = f"<!-- x: tools/x writes what follows -->\n## A\n{RIDDLE}{'word ' * 30}\n<!-- end of x -->\n"
    assert ci.plainness(text, "a.md") == (0, 0)
    assert ci.wide_lines(text) == []
    assert ci.anchors(text) == {"a"}


def test_comments_of_a_header_are_its_prose() -> None:
    assert ci.plainness(f"/* {RIDDLE.strip()} */\nint what;  // of them\n", "a.h")[1] == 4


def test_comments_of_a_public_header_are_plain_too() -> None:
    pages = {ci.INDEX: PLAIN}
    assert ci.check(pages, ci.with_folders(pages), {"sdk/include/a.h": f"/* {PLAIN} */\n"}) == []
    assert "3 places in" in ci.check(pages, ci.with_folders(pages), {"sdk/include/a.h": f"/* {RIDDLE} */\n"})[0]
    assert ci.headers_among(["sdk/include/penstock/a.h", "sdk/kernels/b.hpp", "core/include/penstock/c.txt"]) == ["sdk/include/penstock/a.h"]


def test_prose_ends_at_100_columns() -> None:
    assert "README.md:3: is wider than 100 columns" in found_in({"README.md": "# Title\n\n" + "word " * 21 + "\n"})[0]


@pytest.mark.parametrize(
    "line",
    [
        "- " + "x" * 120,
        "| " + "word " * 30 + "|",
        "    " + "word " * 30,
        "[a link of several words](" + "https://example.org/" * 6 + ")",
        "`" + "word " * 30 + "`",
    ],
)
def test_what_cannot_be_broken_may_be_wider(line: str) -> None:
    assert ci.wide_lines(line) == []


def test_words_that_went_are_named_with_the_word_of_the_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ci, "WENT", {"foretold": "predicted"})
    assert found_in({"a.md": "A step was foretold.\n"}) == ["a.md: says 'foretold', the field's word is 'predicted'"]
    assert found_in({"a.md": "| foretold |\n\n`foretold` is a column.\n"}) == []


def test_a_link_leads_to_a_file_or_a_folder() -> None:
    assert found_in({"a.md": "[code](core/x.cpp) [folder](core) [site](https://example.org/nowhere)\n"}, files=("core/x.cpp",)) == []
    assert found_in({"a.md": "# A\n\n[code](core/y.cpp)\n"}) == ["a.md:3: links to core/y.cpp, which is not there"]


def test_a_link_that_is_broken_over_two_lines_is_one() -> None:
    assert "b.md" in found_in({"a.md": "[two\nlines](b.md)\n"})[0]


def test_a_source_that_a_page_names_is_there() -> None:
    assert found_in({"core/a.md": "`core/x.cpp` and `tests/y.py` and `conf/none.toml`\n"}, files=("core/x.cpp", "core/tests/y.py")) == []
    assert found_in({"a.md": "`core/z.cpp`\n"}) == ["a.md: names core/z.cpp, which is not there"]


def test_an_anchor_is_a_heading_of_its_page() -> None:
    other = "# A title: `code`, and more\n\n## Twice\n\n## Twice\n"
    assert found_in({"a.md": "[x](b.md#a-title-code-and-more) [y](b.md#twice-1) [z](#here)\n\n# Here\n", "b.md": other}) == []
    assert "b.md has no heading #none" in found_in({"a.md": "[x](b.md#none)\n", "b.md": other})[0]


def test_the_index_leads_to_every_page_also_through_others() -> None:
    pages = {ci.INDEX: "[a](a.md)\n", "docs/a.md": "[the folder](more)\n", "docs/more/README.md": PLAIN, "docs/alone.md": PLAIN}
    assert ci.check(pages, ci.with_folders(pages)) == ["docs/alone.md: docs/README.md does not lead to this page"]


def test_a_page_that_has_become_plain_leaves_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ci, "NOT_YET", ("a.md", "b.md"))
    assert found_in({"a.md": RIDDLE, "b.md": PLAIN}) == ["tools/ci/check_pages.py: NOT_YET names b.md, which is plain"]


def test_the_command_fails_on_a_tree_with_a_violation_and_passes_without(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "docs").mkdir()
    index = tmp_path / ci.INDEX
    command = [sys.executable, "-c", "import sys, check_pages as ci; ci.NOT_YET = ci.WIDE = (); sys.exit(ci.main(sys.argv[1:]))"]

    index.write_text("[nowhere](nowhere.md)\n", encoding="utf-8")
    run = {"cwd": Path(ci.__file__).parent, "capture_output": True, "text": True, "check": False}
    failed = subprocess.run([*command, "--root", str(tmp_path)], **run)
    assert failed.returncode == 1
    assert "docs/README.md:1: links to nowhere.md" in failed.stdout

    index.write_text(PLAIN, encoding="utf-8")
    passed = subprocess.run([*command, "--root", str(tmp_path)], **run)
    assert passed.returncode == 0
    assert "1 pages, 0 violations" in passed.stdout
