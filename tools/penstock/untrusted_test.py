"""What `penstock check` does with a file that others may change, and with texts that would steer a terminal."""

import shutil
import subprocess

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
