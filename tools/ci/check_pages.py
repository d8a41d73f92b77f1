#!/usr/bin/env python3
"""Checks the Markdown pages of the repository, and the comments of its public headers.

    plain      at most 8 places in 1000 words at which a reader has to go back (a short page may have 1)
    width      lines of prose end at 100 columns; code, tables, links, headings and single long words may be longer
        words      no word for which the field has another word (WENT)
    links      a link within the repository leads to a file, and its #anchor to a heading
    files      a source that a page names (`core/base/status.hpp`) is there
    index      docs/README.md leads to every page, directly or through other pages

"Plain" counts shapes, not faults: clauses without a subject ("what goes so", "who waits", "where it lacks one,") and
pronouns that stand for a noun ("one that", "those of", "of them", "the same"). It finds pages that need a second
reading; a page without such shapes can still be hard to read.

Usage: tools/ci/check_pages.py [--root DIRECTORY] [--figures] [FILE...]. Prints one line per violation and ends with 1
if there is any. With FILEs: only their plainness and width, also of C and C++ headers. --figures: the figure of each.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath
from posixpath import normpath

MOST_PER_1000 = 8
COLUMNS = 100
INDEX = "docs/README.md"

# Where public headers lie: their comments are plain too.
HEADERS = ("core/include/", "sdk/include/", "frontends/libtorch/include/")

# Pages and headers that are not plain yet. A page leaves this list when it is; none comes in.
NOT_YET: Collection[str] = ()

# Pages with lines of more than 100 columns. The same rule.
WIDE: Collection[str] = ()

# Words that went, and the field's words in their place. The output of programs, code and tables may still have them.
WENT: Mapping[str, str] = {
    "foretell": "predict",
    "foretells": "predicts",
    "foretold": "predicted",
    "whoever": "the process that, the caller that",
    "mends": "fixes",
    "mended": "fixed",
    "left behind": "leaked on purpose",
    "worked on on": "device-resident",
    "lent": "borrowed",
    "fittings?": "bound scheme",
    "meetings?": "rendezvous",
    "mirrors?": "staging buffer",
}

_HEADLESS = re.compile(
    r"\b(?:[Ww]hat|[Ww]ho|[Ww]hoever|[Ww]hatever)\b(?! (?:it is|happens)\?)|(?:^|[.;:] )(?:Where|With one|Without|Of|From) "
)
_STAND_IN = re.compile(
    r"\b(?:one|ones|those|that|others?|none|all) (?:that|of|who|which|with|have|has)\b"
    r"|\bof them\b|\blikewise\b|\bthe same\b|\bas (?:it|they|before|above|elsewhere)\b"
)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_GENERATED = re.compile(r"<!-- [^>]*what follows -->.*?<!-- end of [^>]*-->", re.DOTALL)
_FENCED = re.compile(r"^( *)```.*?^\1```[^\n]*$", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"`[^`]+`")
_LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_SOURCE = re.compile(r"`((?:core|sdk|tools|tests|plugins|frontends)/[\w./-]+\.(?:c|h|cpp|hpp|py|cu|cuh|toml|txt|sh))`")
_LIST_MARK = re.compile(r"^\s*(?:[-*+>]|\d+\.)?\s*")


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def without_code(text: str) -> str:
    """The page with fenced blocks and comments blanked; every line keeps its number."""
    return _COMMENT.sub(_blank, _FENCED.sub(_blank, text))


def written_by_hand(text: str) -> str:
    """Without code and without the parts between two comments that a program writes."""
    return without_code(_GENERATED.sub(_blank, text))


def prose_of_header(text: str) -> str:
    blocks = re.findall(r"/\*.*?\*/", text, re.DOTALL) + re.findall(r"//[^\n]*", text)
    return re.sub(r"^\s*(?:/\*|\*/?|//)", "", "\n".join(blocks), flags=re.MULTILINE).replace("*/", "")


def prose(text: str, name: str) -> str:
    """The text without code, tables and targets of links."""
    if not name.endswith(".md"):
        return prose_of_header(text)
    shown = _LINK.sub(lambda match: match[1], written_by_hand(text))
    return re.sub(r"(?m)^ *\|.*$|^    .*$", "", shown)


def places(said: str) -> int:
    """At which a reader has to go back."""
    return len(_HEADLESS.findall(said)) + len(_STAND_IN.findall(said))


def plainness(text: str, name: str) -> tuple[int, int]:
    """Words, and places at which a reader has to go back."""
    said = prose(text, name)
    return len(re.findall(r"[A-Za-z']+", said)), places(said)


def is_plain(text: str, name: str) -> bool:
    words, found = plainness(text, name)
    return found <= max(1, words * MOST_PER_1000 / 1000)


def can_be_broken(line: str) -> bool:
    """Whether the line has a space outside links and code."""
    whole = _SPAN.sub("x", _LINK.sub("x", line))
    return " " in _LIST_MARK.sub("", whole).strip()


def wide_lines(text: str) -> list[int]:
    return [
        number
        for number, line in enumerate(written_by_hand(text).splitlines(), 1)
        if len(line) > COLUMNS and not line.lstrip().startswith(("|", "#")) and not line.startswith("    ") and can_be_broken(line)
    ]


def anchors(text: str) -> set[str]:
    """As GitHub names headings: small letters, no punctuation, a hyphen for each space, a number behind repeated names."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?) *$", without_code(text), re.MULTILINE):
        shown = _LINK.sub(lambda match: match[1], heading).lower()
        name = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        number = sum(1 for other in found if other == name or re.fullmatch(re.escape(name) + r"-\d+", other))
        found.add(f"{name}-{number}" if number else name)
    return found


def links(text: str) -> list[tuple[int, str]]:
    """Line and target of every link that stays within the repository."""
    shown = _SPAN.sub(lambda match: "x" * len(match[0]) if "](" in match[0] else match[0], without_code(text))
    found = []
    for match in _LINK.finditer(shown):
        if not re.match(r"[a-z]+:", match[2]):
            found.append((shown.count("\n", 0, match.start()) + 1, match[2]))
        inner = _LINK.search(match[1])  # a picture that is a link
        if inner and not re.match(r"[a-z]+:", inner[2]):
            found.append((shown.count("\n", 0, match.start()) + 1, inner[2]))
    return found


def target_of(page: str, link: str) -> tuple[str, str]:
    """Path from the repository's root, and anchor."""
    path, _, anchor = link.partition("#")
    return (normpath((PurePosixPath(page).parent / path).as_posix()) if path else page), anchor


def dead_links(page: str, pages: Mapping[str, str], files: Collection[str]) -> list[str]:
    found = []
    for number, link in links(pages[page]):
        path, anchor = target_of(page, link)
        if path not in files:
            found.append(f"{page}:{number}: links to {link}, which is not there")
        elif anchor and path in pages and anchor not in anchors(pages[path]):
            found.append(f"{page}:{number}: links to {link}; {path} has no heading #{anchor}")
    return found


def missing_sources(page: str, text: str, files: Collection[str]) -> list[str]:
    """Paths count from the repository or from the page's folder."""
    return [
        f"{page}: names {path}, which is not there"
        for path in dict.fromkeys(_SOURCE.findall(without_code(text)))
        if path not in files and target_of(page, path)[0] not in files
    ]


def reached(pages: Mapping[str, str]) -> set[str]:
    """The pages that the index leads to. A link to a folder leads to the folder's README.md."""
    found, left = set(), [INDEX]
    while left:
        page = left.pop()
        if page in found or page not in pages:
            continue
        found.add(page)
        for _, link in links(pages[page]):
            path, _ = target_of(page, link)
            left += [path, f"{path}/README.md"]
    return found


def check_text(page: str, text: str) -> list[str]:
    found = []
    words, places = plainness(text, page)
    if page not in NOT_YET and not is_plain(text, page):
        found.append(
            f"{page}: {places} places in {words} words make a reader go back, at most {MOST_PER_1000} in 1000 are wanted; "
            "write sentences with a subject, a verb and the field's word"
        )
    said = _SPAN.sub(" ", prose(text, page)).lower()
    if page not in NOT_YET:
        found += [f"{page}: says '{word}', the field's word is '{instead}'" for word, instead in WENT.items() if re.search(rf"\b{word}\b", said)]
    if page not in WIDE and page.endswith(".md"):
        found += [f"{page}:{number}: is wider than {COLUMNS} columns" for number in wide_lines(text)]
    return found


def check(pages: Mapping[str, str], files: Collection[str], headers: Mapping[str, str] | None = None) -> list[str]:
    """All violations in pages given as path -> text; `files` are all paths of the repository, its folders too."""
    texts = {**pages, **(headers or {})}
    found = [line for page, text in texts.items() for line in check_text(page, text)]
    found += [line for page in pages for line in dead_links(page, pages, files)]
    found += [line for page, text in pages.items() for line in missing_sources(page, text, files)]
    known = reached(pages)
    found += [f"{page}: {INDEX} does not lead to this page" for page in pages if page not in known]
    for name, listed in (("NOT_YET", NOT_YET), ("WIDE", WIDE)):
        found += [f"tools/ci/check_pages.py: {name} names {page}, which is not there" for page in listed if page not in texts]
    found += [f"tools/ci/check_pages.py: NOT_YET names {page}, which is plain" for page in NOT_YET if page in texts and is_plain(texts[page], page)]
    found += [f"tools/ci/check_pages.py: WIDE names {page}, which is not" for page in WIDE if page in pages and not wide_lines(pages[page])]
    return found


def all_files(root: Path) -> set[str]:
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True, check=True
    )
    return {path for path in listed.stdout.split("\0") if path and (root / path).is_file()}


def pages_among(files: Collection[str]) -> list[str]:
    """The Markdown files; hidden folders are for the repository's host."""
    return [path for path in sorted(files) if path.endswith(".md") and not path.startswith(".")]


def headers_among(files: Collection[str]) -> list[str]:
    return [path for path in sorted(files) if path.startswith(HEADERS) and path.endswith((".h", ".hpp"))]


def with_folders(files: Collection[str]) -> set[str]:
    return set(files) | {parent.as_posix() for path in files for parent in PurePosixPath(path).parents}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--figures", action="store_true")
    options = parser.parse_args(arguments)
    if options.files:
        pages = {file.as_posix(): file.read_text(encoding="utf-8") for file in options.files}
        found = [line for page, text in pages.items() for line in check_text(page, text)]
    else:
        files = all_files(options.root)
        pages = {path: (options.root / path).read_text(encoding="utf-8") for path in pages_among(files)}
        headers = {path: (options.root / path).read_text(encoding="utf-8") for path in headers_among(files)}
        found = check(pages, with_folders(files), headers)
    if options.figures:
        for page, text in pages.items():
            words, places = plainness(text, page)
            print(f"{1000 * places / max(words, 1):6.1f} {words:6} words  {page}")
    print("\n".join([*found, f"{len(pages)} pages, {len(found)} violations"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
