"""The examples at the head of the C++ headers compile as plugins."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = ROOT / "sdk/include/penstock"
KINDS = ("compressor", "memory", "collective", "scheduler")


def example(header: str) -> str:
    """The lines of the opening comment that are indented by three spaces."""
    opening = header.split("#pragma once")[0]
    return "\n".join(line.removeprefix("//   ") for line in opening.splitlines() if line.startswith("//   "))


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_of_a_header_compiles_as_a_plugin(kind, tmp_path):
    text = example((HEADERS / f"{kind}.hpp").read_text())
    assert re.search(rf"^PENSTOCK_{kind.upper()}\(", text, re.MULTILINE), f"{kind}.hpp opens with no example of a plugin"
    source = tmp_path / f"{kind}.cpp"
    source.write_text(f"#include <penstock/{kind}.hpp>\n{text}\n")
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    ran = subprocess.run([compiler, "-std=c++20", "-c", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/sdk/include",
                          str(source), "-o", str(tmp_path / "plugin.o")], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{text}\n{ran.stderr}"
    symbols = subprocess.run(["nm", str(tmp_path / "plugin.o")], capture_output=True, text=True, check=True).stdout
    assert re.search(r"\b[A-Z] penstock_plugin$", symbols, re.MULTILINE)


def test_an_example_is_what_the_opening_comment_indents():
    assert example("// A header:\n//\n//   int one;\n//     two();\n// prose\n#pragma once\n//   int not_this;\n") == "int one;\n  two();"
