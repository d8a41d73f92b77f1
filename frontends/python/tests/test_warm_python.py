"""The warm python runs a program like python, with an equal exit status. Most other tests depend on
this."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm_python

pytestmark = pytest.mark.skipif(
    warm_python.executable() == sys.executable, reason="TEST_PYTHON is real"
)

# Prints the facts from which a program can see how it was started.
PROBE = """
import os, signal, sys, threading
print(__name__, __spec__ and __spec__.name, globals().get("__file__"), os.getcwd())
print(sys.argv, sys.orig_argv[1:], sys.path, sys.executable, sys.prefix)
print(sorted((k, v) for k, v in os.environ.items() if k not in ("_", "PWD", "SHLVL")))
print([signal.getsignal(number) for number in range(1, 32)])
print(threading.active_count(), sorted(os.listdir("/proc/self/fd")))
print([(s.line_buffering, s.write_through, s.encoding, s.errors) for s in (sys.stdout, sys.stderr)])
print(sys.stdin.read(), file=sys.stderr)
"""


def start(python: str, *arguments: str, **options: object) -> subprocess.Popen[str]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([python, *arguments], text=True, **{**pipes, **options})


def said(python: str, *arguments: str, **options: object) -> tuple[str, str, int]:
    process = start(python, *arguments, **options)
    return (*process.communicate("from stdin", timeout=60), process.returncode)


@pytest.mark.parametrize("how", ("code", "module", "script", "unbuffered"))
def test_a_program_sees_what_it_sees_under_python(how, tmp_path):
    (tmp_path / "apart").mkdir()
    (tmp_path / "probe.py").write_text(PROBE)
    (tmp_path / "link.py").symlink_to(tmp_path / "probe.py")
    start_of = {
        "code": ("-c", PROBE), "module": ("-m", "probe"), "script": ("../link.py",),
        "unbuffered": ("-u", "../probe.py"),
    }  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "ONLY": "this one"}
    options = {"cwd": tmp_path / "apart", "env": environment}
    arguments = (*start_of[how], "an argument", "-x")
    assert said(warm_python.executable(), *arguments, **options) == said(
        sys.executable, *arguments, **options
    )


@pytest.mark.parametrize(
    "code",
    (
        "import sys; sys.exit(7)",
        "import sys; sys.exit('why it ends')",
        "import atexit; atexit.register(print, 'the last words'); print('the first')",
        "import os; print('not written'); os._exit(3)",
        "import os; os.kill(os.getpid(), 9)",
        "import os; os.abort()",
        "import os, threading; threading.Timer(0.05, print, ['from a thread']).start()",
        "import ctypes; ctypes.CDLL(None).printf(b'by C')",
    ),
)
def test_it_ends_as_the_program_does(code):
    assert said(warm_python.executable(), "-c", code) == said(sys.executable, "-c", code)


# A process in the background ignores Ctrl-C, and so do its children.
INTERRUPTED = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
os.kill(os.getpid(), signal.SIGINT)
"""


def test_what_a_program_died_of_is_said():
    for code, word, number in (
        ("raise KeyError('unknown')", "KeyError: 'unknown'", 1),
        (INTERRUPTED, "KeyboardInterrupt", -2),
    ):
        _, errors, ended = said(warm_python.executable(), "-c", code)
        assert word in errors and ended == number, errors


# It prints its process id, and a line at SIGUSR1; another signal ends it.
WAITS = """
import os, signal, time
signal.signal(signal.SIGUSR1, lambda *_: print("told", flush=True))
print(os.getpid(), flush=True)
while True: time.sleep(60)
"""


def gone(process: int) -> bool:
    """True if the process has ended. Waits at most a minute."""
    end = time.monotonic() + 60
    while Path(f"/proc/{process}").exists() and time.monotonic() < end:
        time.sleep(0.01)
    return not Path(f"/proc/{process}").exists()


def test_signals_reach_the_program():
    process = start(warm_python.executable(), "-c", WAITS)
    child = int(process.stdout.readline())
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "told\n"
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM and gone(child)


def test_a_program_does_not_outlive_its_client():
    process = start(warm_python.executable(), "-c", WAITS)
    child = int(process.stdout.readline())
    process.kill()
    assert gone(child)
    process.communicate(timeout=60)


ELSEWHERE = ("unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--mount", "--net", "--uts")
SEES = """
import os, socket
print(socket.gethostname(), [name for _, name in socket.if_nameindex()], os.getpid() < 100)
print(os.path.samefile(f"/proc/{os.getpid()}/root", "/"), os.path.ismount("/mnt"))
raise SystemExit(7)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_a_program_on_another_host_is_in_the_namespaces_of_that_host():
    make = "hostname elsewhere; mount -t tmpfs none /mnt; exec \"$@\""
    command = (*ELSEWHERE, "--", "sh", "-c", make, "sh")
    seen = [said(command[0], *command[1:], python, "-c", SEES) for python in (warm_python.executable(), sys.executable)]
    assert seen[0] == seen[1] and seen[0][0].startswith("elsewhere ['lo'] True\nTrue True"), seen


def test_programs_that_a_program_starts_with_its_own_executable_are_warm_if_it_asks():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import sys; print(*sys.modules)'])"
    for variables in ({}, warm_python.with_children()):
        loaded = said(warm_python.executable(), "-c", code, env={**os.environ, **variables})[0]
        assert ("torch" in loaded.split()) == bool(variables)


def test_the_server_and_its_programs_do_not_outlive_who_started_it():
    code = f"""
import subprocess, sys, time
sys.path[:0] = [{str(Path(warm_python.__file__).parent)!r}]
import warm_python
client = warm_python.start(["json"])
program = subprocess.Popen([client, "-c", {WAITS!r}], stdout=subprocess.PIPE)
print(int(program.stdout.readline()), client, flush=True)
time.sleep(600)
"""
    process = start(sys.executable, "-c", code)
    child, client = process.stdout.readline().split()
    process.kill()
    assert gone(int(child))
    process.communicate(timeout=60)
    end = time.monotonic() + 60
    while Path(client).parent.exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not Path(client).parent.exists()


def test_torch_is_there_and_penstock_is_not():
    code = "import sys; print(*(name in sys.modules for name in ('torch', 'penstock')))"
    assert said(warm_python.executable(), "-c", code)[0] == "True False\n"
