"""The warm python: an executable that runs programs like `python`, with torch imported already.

A rank takes two to four seconds of a core to import torch, longer than most tests last. The folder
warm/ says how it works. A test of a fresh interpreter takes REAL. With TEST_PYTHON=real
every process is a fresh interpreter, so you can see whether the warm python causes a failure.
"""

from __future__ import annotations

import atexit
import functools
import multiprocessing.spawn  # before sys.executable changes: it starts real interpreters
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

REAL = sys.executable
WARM = Path(__file__).resolve().parent / "warm"

# torch imports the modules after it at their first use, some 0.5 s each. penstock is not in this
# list, because it reads the environment when it is imported.
MODULES = ("torch", "numpy", "torch.distributed.run", "torch.distributed.fsdp", "torch._dynamo")

# The program of the server. become() must be the last call, because it clears this module.
SERVE = f"""
import os, sys
sys.path[0] = {str(WARM)!r}
import become, server
path = [part for part in sys.path[1:] if part not in sys.argv[4:]]
request = server.run(int(sys.argv[1]), sys.argv[2], sys.argv[3].split(","))
if request: become.become(request, path)
"""


@functools.cache
def executable() -> str:
    """The path of the warm python. The first call starts the server."""
    real = os.environ.get("TEST_PYTHON", "warm") == "real"
    return REAL if real else start(MODULES)


def with_children() -> dict[str, str]:
    """Variables for a program of the warm python that starts other programs with sys.executable:
    these are programs of the warm python too."""
    return {"WARM_PYTHON": executable()}


@contextmanager
def in_place_of_python() -> Iterator[None]:
    """Meanwhile sys.executable is the warm python, here and in all programs that are started
    with it."""
    before = os.environ.get("WARM_PYTHON")
    os.environ.update(with_children())
    sys.executable = executable()
    try:
        yield
    finally:
        sys.executable = REAL
        os.environ.pop("WARM_PYTHON")
        if before is not None:
            os.environ["WARM_PYTHON"] = before


def start(modules: Sequence[str]) -> str:
    """Starts a server that imports `modules`. Returns the path of the executable of its client.
    The server takes clients at once, and answers when it has imported all modules. It ends
    when this process ends, for any reason."""
    # The server removes the folder. The path is short, because the address of a socket must be
    # short.
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="ps"))
    address = folder / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(address))
        listener.listen(100)
        named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        own = [os.path.abspath(part) for part in named if part]
        # The imports of torch and numpy start threads, and a fork would lose them.
        single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        what = (str(listener.fileno()), str(folder), ",".join(modules), *own)
        process = subprocess.Popen(
            [REAL, "-c", SERVE, *what],
            env={**os.environ, **single},
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            start_new_session=True,  # Ctrl-C goes to pytest, which ends the server
        )
    atexit.register(_end, process)
    client = folder / "python"
    words = shlex.join([REAL, "-ISE", str(WARM / "client.py"), str(address)])
    client.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
    client.chmod(0o700)
    return str(client)


def _end(server: subprocess.Popen[bytes]) -> None:
    """Ends the server. If this process is killed, the closed pipe ends the server too."""
    assert server.stdin is not None
    server.stdin.close()
    server.wait()
