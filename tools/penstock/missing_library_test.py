"""A plugin whose library this machine lacks: told in one line with what to install, and no error of the others."""

import json
import subprocess

import pytest
from command_test import ROOT, penstock
from doctor_test import doctor


@pytest.fixture(params=["libmpi.so.99", "libnobody.so.1"])
def lacking(request, tmp_path):
    """A folder with a plugin, and the library that it was linked to and that is gone."""
    library = tmp_path / request.param
    library.with_suffix(".c").write_text("int absent(void) { return 0; }")
    user = tmp_path / "user.c"
    user.write_text((ROOT / "tests/plugins/identity.c").read_text() + "\nint absent(void);\nint (*const used)(void) = absent;\n")
    shared = ["cc", "-std=gnu11", "-shared", "-fPIC", "-w", "-Wl,-z,noexecstack", f"-I{ROOT / 'sdk/include'}"]
    subprocess.run([*shared, library.with_suffix(".c"), f"-Wl,-soname,{library.name}", "-o", library], check=True)
    folder = tmp_path / "plugins"
    folder.mkdir()
    subprocess.run([*shared, "-fvisibility=hidden", user, library, "-o", folder / "compressor-identity-c.so"], check=True)
    library.unlink()
    return folder, library.name


def advice(library):
    return "install Open MPI 4 (Debian: apt-get install libopenmpi3)" if "mpi" in library else "install what has it"


def test_the_list_says_what_a_plugin_lacks_in_one_line(lacking):
    folder, library = lacking
    ran = penstock("plugins", "list", "--plugin-path", folder)
    (line,) = [line for line in ran.stdout.splitlines() if "identity-c" in line]
    assert ran.returncode == 0 and f"needs {library}, which is not on this machine" in line and advice(library) in line
    plugins = json.loads(penstock("plugins", "list", "--json", "--plugin-path", folder).stdout)
    assert {plugin["name"] for plugin in plugins if plugin["state"] == "lacks a library"} == {"identity-c"}
    assert {plugin["state"] for plugin in plugins if plugin["name"] != "identity-c"} == {"usable"}


def test_doctor_warns_of_it_and_says_what_to_install(lacking, alone):
    folder, library = lacking
    ran = doctor(alone, "--plugin-path", folder)
    (line,) = [line for line in json.loads(ran.stdout) if line["subject"] == "plugin compressor/identity-c"]
    assert line["state"] == "warning" and f"needs {library}, which is not on this machine" in line["found"]
    assert line["fix"].startswith(advice(library))
    assert ran.returncode == doctor(alone).returncode


def test_a_scheme_that_names_it_is_refused_with_the_same_words(lacking, tmp_path):
    folder, library = lacking
    scheme = tmp_path / "scheme.toml"
    scheme.write_text('[scheme]\ncompressor = "identity-c"\n')
    ran = penstock("config", "check", "--plugin-path", folder, scheme)
    assert ran.returncode == 1 and f"needs {library}" in ran.stdout and advice(library) in ran.stdout
