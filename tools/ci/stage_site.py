"""Gathers what the site is built of, in build/docs: all Markdown pages of the repository under their own paths, the files to which
they link, a page for each public header and Python module, and mkdocs.yml with the navigation. tools/docs runs it.

Usage: tools/ci/stage_site.py [--root DIRECTORY] [--out DIRECTORY]
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath

sys.path.insert(0, str(Path(__file__).resolve().parent))

import check_pages  # noqa: E402

HEADERS = ("core/include/penstock", "sdk/include/penstock", "frontends/libtorch/include/penstock")
MODULES = ("penstock.torch", "penstock.torch.fsdp", "penstock.torch.optimizer")
OPENING = re.compile(r"\A(?:/\*(?P<block>.*?)\*/|(?P<lines>(?://[^\n]*\n)+))\n*", re.DOTALL)
HEADING = re.compile(r"^## +(.*?) *$", re.MULTILINE)


def opening_comment(source: str) -> tuple[str, str]:
    """A header's first comment as text, and the rest of it. Lines that the comment indents are code."""
    found = OPENING.match(source)
    if not found:
        return "", source
    if found["block"] is not None:
        lines = [re.sub(r"^ \* ?", "", line) for line in found["block"].strip().splitlines()]
    else:
        lines = [re.sub(r"^// ?", "", line) for line in found["lines"].splitlines()]
    text = [f"    {line.strip()}" if re.match(r" {2,}\S", line) else line for line in lines]
    spaced: list[str] = []
    for line in text:
        is_code, was_code = line.startswith("    "), bool(spaced) and spaced[-1].startswith("    ")
        if spaced and spaced[-1] and is_code != was_code and line:
            spaced.append("")
        spaced.append(line)
    return "\n".join(spaced).strip(), source[found.end() :]


def header_page(path: str, source: str) -> str:
    text, rest = opening_comment(source)
    language = "c" if path.endswith(".h") else "cpp"
    name = re.sub(r".*/include/", "", path)
    return f"# `<{name}>`\n\n`{path}`\n\n{text}\n\n```{language}\n{rest.strip()}\n```\n"


def module_page(module: str) -> str:
    return f"# `{module}`\n\n::: {module}\n"


def index_of_api(headers: Collection[str]) -> str:
    rows = [f"- [`{module}`]({module}.md)" for module in MODULES]
    rows += [f"- [`<{re.sub('.*/include/', '', path)}>`]({api_name(path)})" for path in headers]
    return "# API\n\nOne page for each Python module and for each public header.\n\n" + "\n".join(rows) + "\n"


def api_name(path: str) -> str:
    return path.replace("/", "-") + ".md"


def linked_files(pages: Mapping[str, str], files: Collection[str]) -> set[str]:
    """The files of the repository to which pages link and which are no pages."""
    found = set()
    for page, text in pages.items():
        for _, link in check_pages.links(text):
            path, _ = check_pages.target_of(page, link)
            if path in files and path not in pages:
                found.add(path)
    return found


def with_folders_as_files(page: str, text: str, pages: Collection[str], files: Collection[str]) -> str:
    """Links to a folder lead to its README.md, or become plain text where it has none."""
    def change(match: re.Match[str]) -> str:
        path, anchor = check_pages.target_of(page, match[2])
        if re.match(r"[a-z]+:|#", match[2]) or path in files or match[0].startswith("!"):
            return match[0]
        if f"{path}/README.md" in pages:
            return f"[{match[1]}]({match[2].rstrip('/')}/README.md)"
        return match[1]

    return check_pages._LINK.sub(change, text)


def title_of(text: str, page: str) -> str:
    found = re.search(r"^# +(.*?) *$", check_pages.without_code(text), re.MULTILINE)
    return found[1].replace("`", "") if found else page


def navigation(pages: Mapping[str, str], api: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Sections and their pages: those of docs/README.md in their order, then plugins, decisions and the API."""
    index = pages[check_pages.INDEX]
    sections: list[tuple[str, list[str]]] = []
    placed = {"README.md", check_pages.INDEX}
    parts = HEADING.split(index)
    for title, body in zip(parts[1::2], parts[2::2]):
        listed = []
        for _, link in check_pages.links(body):
            path, _ = check_pages.target_of(check_pages.INDEX, link)
            if path in pages and path not in placed:
                placed.add(path)
                listed.append(path)
        sections.append((title, listed))
    left = sorted(set(pages) - placed)
    sections.append(("Plugins", [page for page in left if page.startswith("plugins/")]))
    sections.append(("Decisions", [page for page in left if page.startswith("docs/decisions/")]))
    sections.append(("Other pages", [page for page in left if not page.startswith(("plugins/", "docs/decisions/"))]))
    sections.append(("API", sorted(api, key=lambda page: (page != "api/README.md", page))))
    return [(title, listed) for title, listed in sections if listed]


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def configuration(sections: list[tuple[str, list[str]]], titles: Mapping[str, str]) -> str:
    lines = ["INHERIT: ../../docs/mkdocs.yml", "docs_dir: pages", "site_dir: site", "nav:", '  - "Penstock": README.md', f'  - "All pages": {check_pages.INDEX}']
    for title, listed in sections:
        lines.append(f"  - {quoted(title)}:")
        lines += [f"    - {quoted(titles[page])}: {quoted(page)}" for page in listed]
    return "\n".join(lines) + "\n"


def stage(root: Path, out: Path) -> int:
    files = check_pages.all_files(root)
    pages = {path: (root / path).read_text(encoding="utf-8") for path in check_pages.pages_among(files)}
    headers = sorted(path for path in files if path.startswith(HEADERS) and path.endswith((".h", ".hpp")))
    api = {f"api/{api_name(path)}": header_page(path, (root / path).read_text(encoding="utf-8")) for path in headers}
    api |= {f"api/{module}.md": module_page(module) for module in MODULES}
    api["api/README.md"] = index_of_api(headers)
    shutil.rmtree(out / "pages", ignore_errors=True)
    for page, text in pages.items():
        write(out / "pages" / page, with_folders_as_files(page, text, pages, files))
    for page, text in api.items():
        write(out / "pages" / page, text)
    for path in linked_files(pages, files):
        target = out / "pages" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / path, target)
    titles = {page: title_of(text, PurePosixPath(page).stem) for page, text in {**pages, **api}.items()}
    write(out / "mkdocs.yml", configuration(navigation(pages, api), titles))
    return len(pages) + len(api)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main(arguments: list[str]) -> int:
    repository = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=repository)
    parser.add_argument("--out", type=Path, default=repository / "build/docs")
    options = parser.parse_args(arguments)
    print(f"{stage(options.root, options.out)} pages in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
