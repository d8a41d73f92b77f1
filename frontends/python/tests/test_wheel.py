"""The parts of a wheel: nothing is forgotten, and the wheel works outside the checkout.

`tools/wheel` builds a wheel and tests that.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import penstock
import pytest
import warm_python
from penstock import _ucx

PACKAGE = Path(penstock.__file__).resolve().parent
ROOT = PACKAGE.parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The package as in a wheel: its modules, and beside them the files that cmake installs."""
    package = tmp_path_factory.mktemp("installed") / "penstock"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    command = ["cmake", "--install", ROOT / "build/release", "--component", "runtime"]
    subprocess.run([*command, "--prefix", package], check=True, capture_output=True)
    return package


def run(installed, *arguments, python=sys.executable, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    return subprocess.run(
        [python, *arguments],
        cwd=installed.parent,
        env={**environment, "PYTHONPATH": str(installed.parent), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_scheme_and_every_plugin_is_installed(installed):
    schemes = {path.name for path in installed.glob("share/penstock/conf/*")}
    assert schemes == {path.name for path in (ROOT / "conf").glob("*.toml")}
    plugins = {path.stem for path in installed.glob("lib/penstock/plugins/*")}
    folders = [path.parent for path in (ROOT / "plugins").glob("*/*/CMakeLists.txt")]
    folders.remove(ROOT / "plugins/collectives/nccl")  # needs the CUDA part, which no wheel has
    # The names of the folders are the kinds in the plural.
    kinds = {"memories": "memory"}
    assert plugins == {
        f"{kinds.get(folder.parent.name, folder.parent.name[:-1])}-{folder.name}"
        for folder in folders
    }
    assert (installed / "bin/penstock").is_file()
    libraries = [path.name for path in (installed / "lib").iterdir() if not path.is_dir()]
    assert libraries == ["libpenstock.so.0"]


def test_the_version_is_that_of_the_build():
    pattern = re.search(r"^regex = '(.*)'$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    found = re.search(pattern[1], (ROOT / "CMakeLists.txt").read_text())
    assert found["value"] == penstock.__version__


def test_what_is_installed_works_outside_the_checkout(installed):
    text = '[scheme]\ncollective = "loopback"\n'
    script = (
        f"import json, penstock.torch as hvd; hvd.init(config_text={text!r}); "
        "print(json.dumps(hvd.report()))"
    )
    ran = run(installed, "-c", script)
    assert ran.returncode == 0, ran.stderr
    plugins = [Path(plugin["path"]) for plugin in json.loads(ran.stdout)["plugins"]]
    assert len(plugins) > 20
    assert {plugin.parent for plugin in plugins} == {installed / "lib/penstock/plugins"}


@pytest.mark.long
def test_the_command_comes_along_and_finds_schemes_and_python(installed):
    ran = run(installed, "-m", "penstock", "config", "check", "conf/dgc.toml")
    assert ran.returncode == 0 and ran.stdout == "ok conf/dgc.toml\n", ran.stdout + ran.stderr
    ran = run(installed, "-m", "penstock", "config", "check", "conf/nobody.toml")
    assert ran.returncode == 1 and "there is no such configuration file" in ran.stdout
    lines = json.loads(run(installed, "-m", "penstock", "doctor", "--json").stdout)
    found = {line["subject"]: line["found"] for line in lines}
    assert found["libpenstock"] == str(installed / "lib/libpenstock.so.0")
    assert found["penstock.torch"].startswith(sys.executable)


def test_a_scheme_of_ones_own_comes_before_the_installed_one(installed, tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/dgc.toml").write_text("[scheme]\nnonsense = 1\n")
    command = [installed / "bin/penstock", "config", "check", "conf/dgc.toml"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 1 and "nonsense" in ran.stdout


def test_an_installed_scheme_is_found_for_a_set_too(installed):
    script = "from penstock.torch.settings import scheme_text; print(scheme_text('conf/dgc.toml'))"
    ran = run(installed, "-c", script, python=warm_python.executable())
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == (ROOT / "conf/dgc.toml").read_text() + "\n"


def test_ucx_of_the_package_index_is_taken_where_the_system_has_none(tmp_path, monkeypatch):
    (tmp_path / "libucx/lib").mkdir(parents=True)
    (tmp_path / "libucx/__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(_ucx, "_LIBRARIES", ("libm.so.6",))
    assert _ucx.from_package_index() is None
    monkeypatch.setattr(_ucx, "_LIBRARIES", ("libnobody-has.so.0",))
    assert _ucx.from_package_index() == tmp_path / "libucx/lib"


def evaluated_unions(tree):
    """Lines that evaluate X | Y with types, which Python 3.9 does not support."""
    lazy = any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
        for node in tree.body
    )
    annotations = set()
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            if lazy and getattr(node, field, None) is not None:
                annotations |= {id(inner) for inner in ast.walk(getattr(node, field))}
    types = {"bool", "bytes", "dict", "float", "int", "list", "object", "set", "str", "tuple"}

    def is_type(node):
        return (isinstance(node, ast.Constant) and node.value is None) or (
            isinstance(node, ast.Name) and node.id in types
        )

    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.BitOr)
        and id(node) not in annotations
        and (is_type(node.left) or is_type(node.right))
    ]


# Arguments of functions of the standard library that Python 3.9 does not have.
NEWER_ARGUMENTS = {"zip": {"strict"}, "dataclass": {"slots", "kw_only"}}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_no_module_needs_more_than_python_3_9(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    assert not evaluated_unions(tree)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            given = {keyword.arg for keyword in call.keywords}
            assert not given & NEWER_ARGUMENTS.get(call.func.id, set()), call.lineno


def test_the_search_for_newer_python_finds_some():
    assert evaluated_unions(ast.parse("def f(x: int | None): ..."))
    assert evaluated_unions(ast.parse("from __future__ import annotations\nAlias = int | str"))
    lazy = "from __future__ import annotations\n"
    assert not evaluated_unions(ast.parse(lazy + "def f(x: int | None) -> str | None: ..."))
    assert not evaluated_unions(ast.parse(lazy + "y: int | str = 1"))
    assert not evaluated_unions(ast.parse("flags = A | B"))
