"""A child of the warm python's server runs a program like `python ARGUMENTS`.

Python and torch set some things when they start, and a child cannot change them: all children share
the seed of the hashes of strings, OMP_NUM_THREADS is 1, and torch's libraries are not unloaded at
the end. For tests of these things launch.py can start the real interpreter.
"""

from __future__ import annotations

import builtins
import ctypes
import faulthandler
import importlib
import io
import multiprocessing.spawn  # before sys.executable changes: it starts real interpreters
import os
import resource
import runpy
import signal
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from server import Request

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def become(request: Request, path: Sequence[str]) -> None:
    """Runs the program of the request in the module __main__ of this process. Returns or raises
    like the program.

    path: the search path of python itself and of installed packages.
    """
    streams, namespaces = request.files[:3], request.files[3:]
    for own, stream in enumerate(streams):
        os.dup2(stream, own)
        os.close(stream)
    _enter(namespaces)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    options, program = _options(request.arguments)
    _open_streams(unbuffered="u" in options or bool(os.environ.get("PYTHONUNBUFFERED")))
    _start_anew(request.ignored)
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    sys.executable = os.environ.get("WARM_PYTHON", sys.executable)
    sys.orig_argv = [sys.executable, *request.arguments]
    named = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    sys.path[:] = [*(os.path.abspath(part) for part in named), *path]
    _run(options, program)


def _enter(namespaces: Sequence[int]) -> None:
    """Enters the namespaces that differ from our own. It needs root, as making them does."""
    own = {os.stat(f"/proc/self/ns/{name}").st_ino for name in os.listdir("/proc/self/ns")}
    others = [one for one in namespaces if os.fstat(one).st_ino not in own]
    libc = ctypes.CDLL(None, use_errno=True)
    for namespace in others:
        if libc.setns(namespace, 0) != 0:
            sys.exit(f"setns: {os.strerror(ctypes.get_errno())}")
    for namespace in namespaces:
        os.close(namespace)
    if others:
        _go_on_in_a_child()


def _go_on_in_a_child() -> None:
    """Returns in a child, which is in the namespace of processes that this process has entered.
    This process passes signals on to the child, and ends as the child does."""
    child = os.fork()
    if child == 0:
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, _: os.kill(child, number))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code >= 0:
        os._exit(code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child has already left a core file
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


def _options(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The options before the program, as letters (-c or -m is the last), and the program with its
    arguments."""
    letters = ""
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        letters += rest.pop(0)[1:]
        if letters.endswith(("c", "m")):
            break
    unknown = set(letters) - set("ucm")
    if unknown or not rest:
        sys.exit(f"warm python takes [-u] [-c CODE | -m MODULE | SCRIPT] ..., not {arguments}")
    return letters, rest


def _run(options: str, program: list[str]) -> None:
    main = sys.modules["__main__"].__dict__
    main.clear()
    main.update(__name__="__main__", __builtins__=builtins, __doc__=None)
    main.update(__package__=None, __loader__=None, __spec__=None)
    sys.argv[:] = program
    if "m" in options:
        sys.path.insert(0, os.getcwd())
        sys.modules.pop(program[0], None)  # run it anew, do not import it
        runpy._run_module_as_main(program[0])  # the function that `python -m` calls
        return
    if "c" in options:
        sys.path.insert(0, "")
        sys.argv[0] = "-c"
        exec(compile(program[0], "<string>", "exec"), main)
        return
    script = program[0]
    sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
    main["__file__"] = os.path.join(os.getcwd(), script)
    with io.open_code(script) as source:
        code = compile(source.read(), script, "exec")
    exec(code, main)


def _open_streams(*, unbuffered: bool) -> None:
    sys.stdin = sys.__stdin__ = open(0, closefd=False)
    for number, name in ((1, "stdout"), (2, "stderr")):
        before = getattr(sys, name)
        file: Any = open(number, "wb", 0 if unbuffered else -1, closefd=False)
        text = io.TextIOWrapper(
            file,
            encoding=before.encoding,
            errors=before.errors,
            line_buffering=not unbuffered and (name == "stderr" or file.isatty()),
            write_through=unbuffered,
        )
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


def _start_anew(ignored: Sequence[int]) -> None:
    """Sets anew the things that the server has set. Python itself seeds its random numbers after a
    fork."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    tempfile.tempdir = None
    importlib.invalidate_caches()
    _tie_the_ends()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def _tie_the_ends() -> None:
    """This process does not outlive the server. At its own end, libraries that are loaded from now
    on (the runtime, MPI) end as usual. Then the process ends at once, before torch's libraries free
    memory that is shared with other children, which would take 0.2 s of a core."""
    process = ctypes.CDLL(None)
    process.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    process.on_exit(process._exit, None)  # on_exit calls _exit with the exit code
    process.__cxa_atexit(process.fflush, None, None)  # before _exit: the last handler runs first
