"""A test that reads a page has the mark `pages`, so that it runs where only pages have changed."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# A path to a page of this checkout, as tests write it.
READS = re.compile(r"""(?:ROOT|parents\[\d\]|PAGE)\b[^\n]*(?:\.md["']|PAGE\b)|\bPAGE\b""")


def functions_without_the_mark(source: str) -> list[str]:
    """The tests of a file that read a page, or call a function of the file that does, and do not have the mark."""
    tree = ast.parse(source)
    if any(isinstance(node, ast.Assign) and "mark.pages" in ast.unparse(node) for node in tree.body):
        return []
    functions = {node.name: ast.get_source_segment(source, node) or "" for node in tree.body if isinstance(node, ast.FunctionDef)}
    marked = {
        node.name for node in tree.body
        if isinstance(node, ast.FunctionDef) and any("mark.pages" in ast.unparse(one) for one in node.decorator_list)
    }
    readers = {name for name, text in functions.items() if READS.search(text)}
    while more := {name for name, text in functions.items() if name not in readers and _calls(text, readers)}:
        readers |= more
    return sorted(name for name in readers - marked if name.startswith("test_"))


def _calls(text: str, names: set[str]) -> bool:
    return any(re.search(rf"\b{name}\b", text) for name in names)


def files_outside_pages() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "*_test.py", "test_*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in listed.stdout.split() if not path.startswith(("tests/pages/", "tools/ci/"))]


def test_every_test_that_reads_a_page_has_the_mark() -> None:
    missing = {path: names for path in files_outside_pages() if (names := functions_without_the_mark((ROOT / path).read_text()))}
    assert not missing, f"give these tests @pytest.mark.pages: {missing}"


def test_a_reader_without_the_mark_is_found_and_so_is_a_test_that_calls_it() -> None:
    source = '''
def rows():
    return (ROOT / "docs/plan.md").read_text()
def test_calls():
    assert rows()
def test_reads():
    assert (ROOT / "conf/README.md").read_text()
@pytest.mark.pages
def test_marked():
    assert rows()
def test_other():
    assert (tmp_path / "figures.md").read_text()
'''
    assert functions_without_the_mark(source) == ["test_calls", "test_reads"]
