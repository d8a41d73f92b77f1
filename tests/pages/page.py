"""Markdown pages for these tests: fenced blocks with their place, and the commands in running text."""

from __future__ import annotations

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]

FENCE = re.compile(r"^```(?P<language>\S*)\s*$")
# A comment before a block: `<!-- block: NAME -->`. The page does not show it.
NAME = re.compile(r"^<!-- block: (?P<name>[a-z0-9-]+) -->$")
CODE_SPAN = re.compile(r"`([^`\n]+)`")


@dataclasses.dataclass(frozen=True)
class Block:
    page: str  # relative to the repository
    line: int
    language: str
    name: str  # "" if the block has no name
    text: str

    @property
    def id(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[pathlib.Path]:
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/guide/*.md"), *ROOT.glob("docs/design/*.md"), *ROOT.glob("conf/*.md"), *ROOT.glob("frontends/*/README.md"),
             *ROOT.glob("sdk/template/README.md"), *ROOT.glob("plugins/*/*/README.md")]
    return sorted(found)


def blocks_of(page: pathlib.Path) -> list[Block]:
    """All fenced blocks of a page; an open fence at its end is an error."""
    found, lines = [], page.read_text(encoding="utf-8").splitlines()
    start, language, name = None, "", ""
    for number, line in enumerate(lines, 1):
        fence = FENCE.match(line)
        if start is None and fence:
            start, language = number, fence["language"]
            before = NAME.match(lines[number - 2]) if number > 1 else None
            name = before["name"] if before else ""
        elif start is not None and line == "```":
            text = "\n".join(lines[start:number - 1]) + "\n"
            found.append(Block(str(page.relative_to(ROOT)), start, language, name, text))
            start = None
    assert start is None, f"{page}:{start}: this block is never closed"
    return found


def all_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks_of(page)]


def without_blocks(text: str) -> str:
    kept, inside = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = not inside
            line = ""
        kept.append("" if inside else line)
    return "\n".join(kept)


OURS = ("penstock ", "tools/", "build/release/bin/penstock ")


def commands_in_text() -> list[tuple[str, str]]:
    """(place, command) of every code span that begins like a command of this repository, and of every line of a block
    that is not run (`text`) and begins like one, or like torchrun."""
    found = [
        (f"{block.page}:{block.line}", line.split("  #")[0].strip())
        for block in all_blocks() if block.language == "text"
        for line in block.text.splitlines() if line.startswith((*OURS, "torchrun "))
    ]
    for page in pages():
        if page.name == "CHANGELOG.md":
            continue  # describes older versions
        for number, line in enumerate(without_blocks(page.read_text(encoding="utf-8")).splitlines(), 1):
            for span in CODE_SPAN.findall(line):
                if span.startswith(OURS):
                    found.append((f"{page.relative_to(ROOT)}:{number}", span))
    return found
