"""The client of the warm python: `client.py SOCKET ARGUMENTS` acts as `python ARGUMENTS`, in a
child of the server that listens at SOCKET. It ends as the child does, also by a signal. It is
started for every rank, so it imports little.
"""

import marshal
import os
import resource
import signal
import socket
import sys

PASSED_ON = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip

# The child enters these namespaces of the client: a client on a test host has another name, other
# processes and mounts than the server.
NAMESPACES = ("net", "pid", "uts", "mnt")


def main() -> int:
    """The exit code of the child, or minus the number of the signal that ended it."""
    ignored = [number for number in PASSED_ON if signal.getsignal(number) == signal.SIG_IGN]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(sys.argv[1])
        # The request must be the first message, so signals are blocked until it is sent.
        signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
        for number in PASSED_ON:
            if number not in ignored:
                signal.signal(number, lambda number, _: server.send(bytes([number])))
        request = (sys.argv[2:], os.getcwd(), dict(os.environ), [int(one) for one in ignored])
        own = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in NAMESPACES]
        socket.send_fds(server, [marshal.dumps(request)], [0, 1, 2, *own])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        answer = server.recv(100)
    if not answer:
        sys.exit("the server of the warm python has ended; TEST_PYTHON=real does without")
    return marshal.loads(answer)


code = main()
if code < 0:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child has already left a core file
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
