"""The server of the warm python: it imports torch once, and forks a child for each client.

A rank takes two seconds of a core to import torch, and most tests are shorter. A child has imported
torch already, and then behaves like `python ARGUMENTS` (become.py). The client (client.py) is the
process that the launcher sees. The child uses the folder, environment and streams of the client,
and the client ends with the status of the child.

A request is one message with open files: three streams, and the namespaces of the client. After it a client sends the number of each signal
that it gets, and the server sends the status of the child. If a client vanishes, the server kills
its child. pytest holds the other end of the server's stdin. When pytest ends, the server and its
children end too.
"""

from __future__ import annotations

import gc
import importlib
import marshal
import os
import selectors
import shutil
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

LONGEST_REQUEST = 1 << 20
MOST_FILES = 10


@dataclass
class Request:
    """The request of a client."""

    arguments: list[str]
    folder: str
    environment: dict[str, str]
    ignored: list[int]  # signals that the client was started to ignore
    files: list[int]  # its stdin, stdout and stderr, and then its namespaces


def import_all(modules: Sequence[str]) -> None:
    """Imports the modules for children. Modules that an older torch does not have are left out."""
    for name in modules:
        with suppress(ModuleNotFoundError):
            importlib.import_module(name)
    if len(os.listdir("/proc/self/task")) != 1:
        sys.exit(f"importing {', '.join(modules)} started threads, which no child would have")
    gc.collect()
    gc.freeze()  # so the garbage collection of a child does not copy shared objects


def run(listener: int, folder: str, modules: Sequence[str]) -> Request | None:
    """Serves the clients of a socket. Returns in each child, with its request. Returns None in the
    server at its end, when `folder`, the folder of the socket, is removed.

    listener: the number of the socket. If an import fails, the server ends and tells its clients.
    """
    request = None
    try:
        import_all(modules)
        request = Server(socket.socket(fileno=listener)).serve()
    finally:
        if request is None:
            shutil.rmtree(folder, ignore_errors=True)
    return request


class Server:
    """Waits for clients, and for their children to end."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._clients: dict[int, socket.socket] = {}  # by the child's process id
        self._ended, ended = os.pipe()
        os.set_blocking(ended, False)
        os.set_blocking(self._ended, False)
        signal.set_wakeup_fd(ended)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Not epoll, which a child would share with its parent.
        self._selector = selectors.PollSelector()
        for file in (0, self._ended, listener):
            self._selector.register(file, selectors.EVENT_READ)
        self._wakeup = ended

    def serve(self) -> Request | None:
        """Returns in each child, with its request, and in the server at its end, with None."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == 0:
                    self._kill_all()
                    return None
                if key.fileobj == self._ended:
                    self._tell_who_ended()
                elif key.fileobj is self._listener:
                    client, _ = self._listener.accept()
                    self._selector.register(client, selectors.EVENT_READ, data=[])
                elif key.data:
                    self._pass_on(key.fileobj, key.data[0])
                else:
                    request = self._fork(key.fileobj, key.data)
                    if request is not None:
                        return request

    def _fork(self, client: socket.socket, child: list[int]) -> Request | None:
        """Reads a client's first message. Returns the request in the child, whose process id
        goes to the list `child`."""
        message, files, _, _ = socket.recv_fds(client, LONGEST_REQUEST, MOST_FILES)
        if not message:  # the client has ended without a request
            self._forget(client)
            return None
        process = os.fork()
        if process == 0:
            os.setsid()
            self._let_go()
            return Request(*marshal.loads(message), files)
        child.append(process)
        self._clients[process] = client
        for file in files:
            os.close(file)
        return None

    def _let_go(self) -> None:
        """In a child: closes the files of the server and resets its signals."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for file in self._selector.get_map().values():
            if file.fd not in (0, self._ended):
                file.fileobj.close()
        self._selector.close()
        os.close(self._ended)
        os.close(self._wakeup)

    def _pass_on(self, client: socket.socket, child: int) -> None:
        """Passes a signal of a client on to its child. If the client is gone, kills the child and
        all processes that it has started."""
        try:
            message = client.recv(1)
        except ConnectionError:
            message = b""
        if child in self._clients:
            _send(child, message[0] if message else signal.SIGKILL, all_of_it=not message)
        if not message:
            self._forget(client)

    def _tell_who_ended(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._ended, 512):
                pass
        with suppress(ChildProcessError):  # none is left
            while True:
                child, status = os.waitpid(-1, os.WNOHANG)
                if child == 0:
                    return
                client = self._clients.pop(child)
                with suppress(OSError):  # the client is gone
                    client.send(marshal.dumps(os.waitstatus_to_exitcode(status)))

    def _forget(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        client.close()

    def _kill_all(self) -> None:
        for child in self._clients:
            _send(child, signal.SIGKILL, all_of_it=True)


def _send(child: int, number: int, *, all_of_it: bool) -> None:
    """all_of_it: also to the processes that the child has started."""
    with suppress(ProcessLookupError):
        os.kill(child, number)
        if all_of_it:
            os.killpg(child, number)
