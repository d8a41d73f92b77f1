"""What the site is built of: pages, the files to which they link, headers, and the navigation."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import stage_site


def test_the_opening_comment_of_a_header_is_text_and_the_rest_code() -> None:
    text, rest = stage_site.opening_comment("/* One line.\n *\n * Another:\n *     int code;\n * end. */\n#ifndef X\n")
    assert text == "One line.\n\nAnother:\n\n    int code;\n\nend."
    assert rest == "#ifndef X\n"


def test_lines_of_comments_are_an_opening_too() -> None:
    assert stage_site.opening_comment("// One.\n// Two.\n#pragma once\n// not this\n") == ("One.\nTwo.", "#pragma once\n// not this\n")


def test_a_header_without_a_comment_has_no_text() -> None:
    assert stage_site.opening_comment("#pragma once\n") == ("", "#pragma once\n")


@pytest.mark.parametrize(
    ("link", "becomes"),
    [
        ("[a](conf)", "[a](conf/README.md)"),
        ("[a](sdk/)", "a"),
        ("[a](conf/x.toml)", "[a](conf/x.toml)"),
        ("[a](https://example.org)", "[a](https://example.org)"),
        ("[a](#below)", "[a](#below)"),
    ],
)
def test_a_link_to_a_folder_leads_to_its_page(link: str, becomes: str) -> None:
    assert stage_site.with_folders_as_files("README.md", link, {"conf/README.md"}, {"conf/x.toml", "conf/README.md"}) == becomes


def test_the_navigation_has_every_page_once_in_the_order_of_the_index() -> None:
    index = "# Index\n\n## Second\n\n[b](b.md) [a](a.md)\n\n## First\n\n[a](a.md)\n"
    pages = {"README.md": "", "docs/README.md": index, "docs/a.md": "", "docs/b.md": "", "plugins/memories/x/README.md": "", "docs/decisions/1.md": ""}
    sections = stage_site.navigation(pages, {"api/x.md": "", "api/README.md": ""})
    assert sections == [
        ("Second", ["docs/b.md", "docs/a.md"]),
        ("Plugins", ["plugins/memories/x/README.md"]),
        ("Decisions", ["docs/decisions/1.md"]),
        ("API", ["api/README.md", "api/x.md"]),
    ]


def test_pages_are_staged_with_the_files_to_which_they_link(tmp_path: Path) -> None:
    root, out = tmp_path / "checkout", tmp_path / "out"
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for path, text in {
        "README.md": "# Top\n\n[scheme](conf/x.toml)\n",
        "docs/README.md": "# All\n\n## Here\n\n[top](../README.md)\n",
        "conf/x.toml": "[scheme]\n",
        "conf/y.toml": "",
        "sdk/include/penstock/base.h": "/* Base. */\n#define X 1\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    stage_site.stage(root, out)
    staged = {path.relative_to(out / "pages").as_posix() for path in (out / "pages").rglob("*") if path.is_file()}
    assert {"README.md", "docs/README.md", "conf/x.toml", "api/README.md", "api/sdk-include-penstock-base.h.md"} <= staged
    assert "conf/y.toml" not in staged
    assert '"All": "docs/README.md"' not in (out / "mkdocs.yml").read_text()
    assert '- "<penstock/base.h>": "api/sdk-include-penstock-base.h.md"' in (out / "mkdocs.yml").read_text()
