"""`penstock check` with a file that others may change, and all commands of `penstock` with texts that contain control
characters of a terminal."""

import os
import shutil
import subprocess
import unicodedata

import pytest

from command_test import BUILD, ROOT, findings, penstock


def test_the_code_of_a_file_that_everybody_may_change_is_not_run(tmp_path):
    plugin = tmp_path / "compressor-identity-c.so"
    shutil.copy(BUILD / "tests/plugins/identity/plugin.so", plugin)
    plugin.chmod(0o666)
    status, tests = findings(plugin)
    assert status == 1
    verdict, reason = tests["trust"]
    assert verdict == "fail" and f"everybody may write to {plugin}" in reason
    assert "load" not in tests and "--allow-insecure" in tests["the other tests"][1]
    allowed = penstock("check", plugin, "--allow-insecure")
    assert allowed.returncode == 0 and "warning  trust: " in allowed.stdout and "ok       load" in allowed.stdout


def test_texts_of_plugins_cannot_steer_the_terminal(tmp_path):
    source = (ROOT / "tests/plugins/villain.c").read_text().replace(
        "the villain does not want to", "red \\033[31m\\nok       elf")
    (tmp_path / "villain.c").write_text(source)
    plugin = tmp_path / "compressor-villain.so"
    subprocess.run(["cc", "-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden", "-w", "-Wl,-z,noexecstack",
                    "-DCREATE_FAILS", f"-I{ROOT / 'sdk/include'}", tmp_path / "villain.c", "-o", plugin], check=True)
    ran = penstock("check", plugin)
    assert ran.returncode == 1 and "\x1b" not in ran.stdout + ran.stderr
    assert "red \\x1b[31m ok       elf" in ran.stdout
    assert sum(line.startswith("ok       elf") for line in ran.stdout.splitlines()) == 1
    assert "\x1b" not in penstock("check", plugin, "--json").stdout


# As TOML writes it: a line's end, a mark that turns the direction of writing, a colour, and a line's end of Unicode.
BAD = "k\\n\\u202E\\u001B[31m\\u0085"
FILES = {
    "table": f'["{BAD}"]\na = 1\n',
    "key of a scheme": f'[scheme]\n"{BAD}" = 1\n',
    "instance": f'[scheme]\ncompressor = "{BAD}"\n[compressor."{BAD}"]\nplugin = "topk"\n',
    "plugin": f'[scheme]\ncompressor = "x"\n[compressor.x]\nplugin = "{BAD}"\n',
    "option": f'[scheme]\ncompressor = "topk"\n[compressor.topk]\n"{BAD}" = 1\n',
    "value": f'[scheme]\ncompressor = "topk"\n[compressor.topk]\ndensity = "{BAD}"\n',
    "condition": f'[[rule]]\nmatch = {{ "{BAD}" = 1 }}\n',
    "pattern": f'[[rule]]\nmatch = {{ name = "{BAD}" }}\ncompressor = "fp16"\n',
    "option of a rule": f'[[rule]]\nmatch = {{ dims = 1 }}\noptions = {{ compressor."{BAD}".x = 1 }}\n',
    "key of a switch": f'[[switch]]\nat_step = 1\nset = {{ "{BAD}".b = 1 }}\n',
    "key of the run": f'[runtime]\n"{BAD}" = 1\n',
    "folder": f'[runtime]\nplugin_path = "/tmp/{BAD}"\n[scheme]\ncompressor = "nowhere"\n',
    "twice": f'[scheme]\n"{BAD}" = 1\n"{BAD}" = 2\n',
    "no TOML": "[scheme]\nk\u202e = = 2\n",
}


def shows_what_is_there(ran, lines=None):
    """The output has no control characters except ends of lines."""
    for text in (ran.stdout, ran.stderr):
        unseen = [character for character in text if unicodedata.category(character) in ("Cc", "Cf") and character != "\n"]
        assert not unseen, text
    if lines is not None:
        assert len((ran.stdout + ran.stderr).splitlines()) == lines, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", FILES)
def test_no_key_or_value_of_a_file_steers_the_terminal(name, tmp_path):
    file = tmp_path / "bad.toml"
    file.write_text(FILES[name])
    checked = penstock("config", "check", file)
    assert checked.returncode == 1
    shows_what_is_there(checked, 1)
    shows_what_is_there(penstock("config", "check", "--json", file))
    planned = penstock("plan", "--scheme", file)
    assert planned.returncode == 1
    shows_what_is_there(planned)


@pytest.mark.parametrize("arguments", [
    ["k\n\u202e\x1b[2J"], ["plan", "--k\n\u202e"], ["plan", "--model", "k\n\u202e"], ["plan", "--link", "k\n\u202e"],
    ["config", "check", "k\n\u202e.toml"], ["plugins", "describe", "k\n\u202e"], ["check", "/k\n\u202e.so"],
    ["run", "-np", "k\u202e", "--", "true"], ["run", "--config", "k\n\u202e.toml", "-np", "1", "--", "true"],
])
def test_no_argument_steers_the_terminal(arguments):
    ran = penstock(*arguments)
    assert ran.returncode != 0
    shows_what_is_there(ran)


def test_no_argument_of_doctor_steers_the_terminal(alone):
    ran = subprocess.run([alone / "bin/penstock", "doctor", "k\u202e"], capture_output=True, text=True, timeout=300,
                         env={**os.environ, "PATH": ""}, check=False)
    assert ran.returncode != 0 and "k\\u202e" in ran.stdout
    shows_what_is_there(ran)


def test_no_name_of_a_gradient_steers_the_terminal(tmp_path):
    model = tmp_path / "model.csv"
    rows = "".join(f"k\u202e\x1b[31m{number},1000x100,0.01\n" for number in range(3))
    model.write_text(f"# forward_ms = 1\n# backward_ms = 2\nname,shape,work\n{rows}")
    shows_what_is_there(penstock("plan", "--model", model, "--scheme", ROOT / "conf/topk-residual.toml"))
    model.write_text("# forward_ms = 1\n# backward_ms = 2\nname,shape,work\nk\u202e\x1b[31m,ten,0.01\n")
    refused = penstock("plan", "--model", model)
    assert refused.returncode == 1
    shows_what_is_there(refused, 1)


def test_names_that_are_no_utf_8_are_drawn(tmp_path):
    model = tmp_path / "model.csv"
    model.write_bytes(b"# forward_ms = 1\n# backward_ms = 2\nname,shape,work\na\xff,1000x100,0.01\n")
    drawn = penstock("plan", "--model", model, "--scheme", ROOT / "conf/topk-residual.toml", "--trace", tmp_path / "trace.json")
    assert drawn.returncode == 0, drawn.stderr
    assert "a\ufffd" in (tmp_path / "trace.json").read_text()
