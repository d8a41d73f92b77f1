"""Hosts of network namespaces: their functions, and that nothing is left of these hosts after any end of their program."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOM = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOM))

from hosts import Hosts, HostsError, link_rate, needed, rate_words  # noqa: E402
from hosts.hosts import NAMES, SUBNET  # noqa: E402

needs_hosts = needed.needs_hosts()

# A suite in the background of a shell has SIGINT ignored, and hands that on.
OWNER = f"""
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {str(ROOM)!r})
from hosts import Hosts
with Hosts(2, "1gbit") as hosts:
    for host in (0, 1):
        hosts.start(["sleep", "1000"], host)
    hosts.start(["readlink", "/proc/self/ns/net"], 1).wait()
    END
"""

RECEIVE = f"""
import socket
server = socket.create_server(("{SUBNET}.11", 7000))
print("listening", flush=True)
peer, _ = server.accept()
received = 0
while part := peer.recv(65536):
    received += len(part)
peer.sendall(str(received).encode())
"""

SEND = f"""
import socket, time
peer = socket.create_connection(("{SUBNET}.11", 7000))
start = time.perf_counter()
peer.sendall(bytes(2_000_000))
peer.shutdown(socket.SHUT_WR)
received = int(peer.recv(64))
print(received, time.perf_counter() - start)
"""


def users_of(namespace: str) -> list[str]:
    """Processes in a network namespace."""
    users = []
    for link in pathlib.Path("/proc").glob("[0-9]*/ns/net"):
        try:
            if os.readlink(link) == namespace:
                users.append(link.parts[2])
        except OSError:
            continue  # it ended meanwhile
    return users


def names_outside() -> list[str]:
    return sorted(os.listdir(NAMES)) if NAMES.exists() else []


@needs_hosts
def test_every_host_has_its_name_and_its_address():
    with Hosts(3, "1gbit") as hosts:
        for number in range(3):
            with hosts.start(["sh", "-c", "hostname; ip -br -4 addr show eth0"], number, stdout=subprocess.PIPE, text=True) as said:
                name, address = said.communicate(timeout=30)[0].splitlines()
            assert name == f"h{number}" and f"{SUBNET}.{10 + number}/24" in address


@needs_hosts
def test_every_host_knows_the_others_by_name():
    with Hosts(2, "1gbit") as hosts:
        for host in (0, 1):
            with hosts.start(["getent", "hosts", "h0", "h1"], host, stdout=subprocess.PIPE, text=True) as said:
                addresses = [line.split()[0] for line in said.communicate(timeout=30)[0].splitlines()]
            assert addresses == [f"{SUBNET}.10", f"{SUBNET}.11"]


@needs_hosts
def test_a_link_takes_the_time_that_its_rate_says():
    with Hosts(2, "20mbit") as hosts:
        receiver = hosts.start([sys.executable, "-c", RECEIVE], 1, stdout=subprocess.PIPE, text=True)
        assert receiver.stdout.readline() == "listening\n"
        sender = hosts.start([sys.executable, "-c", SEND], 0, stdout=subprocess.PIPE, text=True)
        received, seconds = sender.communicate(timeout=60)[0].split()
        receiver.communicate(timeout=60)
    # Never faster, and slower if the machine is busy. The burst does not count.
    assert int(received) == 2_000_000 and float(seconds) > 8 * (2_000_000 - 2 * 32_000) / 20e6


@needs_hosts
def test_a_link_that_was_cut_carries_nothing_until_it_is_restored():
    def connects(hosts):
        line = f"import socket; socket.create_connection(('{SUBNET}.11', 7000), timeout=0.5)"
        return hosts.start([sys.executable, "-c", line], 0, stderr=subprocess.DEVNULL).wait(timeout=30) == 0

    with Hosts(2, "1gbit") as hosts:
        listen = f"import socket, time; s = socket.create_server(('{SUBNET}.11', 7000), backlog=9); print(flush=True); time.sleep(60)"
        listener = hosts.start([sys.executable, "-c", listen], 1, stdout=subprocess.PIPE, text=True)
        listener.stdout.readline()
        assert connects(hosts)
        hosts.cut(1)
        assert not connects(hosts)
        hosts.restore(1)
        assert connects(hosts)
    listener.communicate(timeout=30)  # it ends with them


@needs_hosts
def test_one_rank_starts_on_each_host():
    with Hosts(2, "1gbit") as hosts:
        assert sorted(hosts.mpirun(["hostname"]).split()) == ["h0", "h1"]


MEET = """
from penstock.common.runtime import Runtime
runtime = Runtime("", "", "a test")
print(f"met as {runtime.topology.rank} of {runtime.topology.size}\\n", end="", flush=True)
runtime.close()
"""


@needs_hosts
def test_rank_0_may_be_on_a_host_of_a_hundred_addresses():
    root = ROOM.parent
    paths = {"PYTHONPATH": str(root / "frontends/python"), "PENSTOCK_LIBRARY": str(root / "build/release/lib/libpenstock.so")}
    # Not on eth0: Open MPI offers its peers any address of an interface with several addresses.
    add = (
        "ip link add many type veth peer name others && ip link set many up && ip link set others up && "
        "for last in $(seq 100); do ip addr add 10.211.$last.1/24 dev many || exit 1; done"
    )
    with Hosts(2, "1gbit") as hosts:
        assert hosts.start(["sh", "-c", add], 0).wait(timeout=60) == 0
        said = hosts.mpirun([sys.executable, "-c", MEET], paths, timeout_s=120)
    assert sorted(said.split("\n")) == ["", "met as 0 of 2", "met as 1 of 2"]


@needs_hosts
def test_two_uses_at_a_time_do_not_meet():
    with Hosts(2, "1gbit") as one, Hosts(2, "30mbit") as other:
        for hosts, rate in ((one, "1Gbit"), (other, "30Mbit")):
            with hosts.start(["tc", "qdisc", "show", "dev", "eth0"], 1, stdout=subprocess.PIPE, text=True) as said:
                assert f"rate {rate} " in said.communicate(timeout=30)[0]


TWO_ONE_AFTER_THE_OTHER = f"""
import sys
sys.path.insert(0, {str(ROOM)!r})
from hosts import Hosts
first = Hosts(2, "1gbit")
first.__enter__()
with Hosts(2, "1gbit") as later:
    first.__exit__()
    sys.exit(later.start(["true"], 1).wait(timeout=30))
"""


@needs_hosts
def test_hosts_stay_when_the_hosts_that_were_made_before_them_end():
    # In a /run of its own, in which `ip netns` has left no folder yet.
    command = 'mount -t tmpfs none /run && exec "$0" -c "$1"'
    ran = subprocess.run(["unshare", "--mount", "sh", "-c", command, sys.executable, TWO_ONE_AFTER_THE_OTHER], timeout=60)
    assert ran.returncode == 0


@needs_hosts
def test_the_machine_itself_sees_none_of_them():
    before = names_outside()
    with Hosts(2, "1gbit"):
        assert [name for name in names_outside() if name in ("h0", "h1", "switch", "penstock")] == []
    assert names_outside() == before


@needs_hosts
@pytest.mark.parametrize(
    ("end", "number"),
    [("pass", None), ("raise SystemExit(3)", None), ("time.sleep(1000)", signal.SIGINT),
     ("time.sleep(1000)", signal.SIGTERM), ("time.sleep(1000)", signal.SIGKILL)],
    ids=["in order", "by a failure", "by an interrupt", "by a termination", "killed"],
)  # fmt: skip
def test_nothing_is_left_when_their_program_ends(end, number):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER.replace("END", end)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    namespace = owner.stdout.readline().strip()
    assert namespace.startswith("net:[")
    if number is not None:
        entered = time.monotonic() + 30
        while not users_of(namespace) and time.monotonic() < entered:
            time.sleep(0.01)  # a process may be started, but not yet there
        assert users_of(namespace)
        owner.send_signal(number)
    # The pipe ends when the last process there has ended.
    assert owner.stdout.read() == ""
    owner.wait(timeout=30)
    deadline = time.monotonic() + 30
    while (users := users_of(namespace)) and time.monotonic() < deadline:
        time.sleep(0.05)  # the kernel takes them down one after the other
    assert users == []


@needs_hosts
def test_hosts_that_fail_in_the_making_say_why_and_are_gone(tmp_path, monkeypatch):
    shaper = tmp_path / "tc"
    shaper.write_text('#!/bin/sh\n[ "$4" = eth0 ] && exit 0\necho "no such qdisc" >&2\nexit 2\n')
    shaper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    before = names_outside()
    with pytest.raises(HostsError, match="^no such qdisc$"), Hosts(2, "1gbit"):
        pass
    assert names_outside() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without the right")
def test_without_the_right_it_is_one_sentence():
    script = "from hosts import *\ntry:\n    Hosts(2, '1gbit').__enter__()\nexcept HostsError as error:\n    print(error)"
    python = "/usr/bin/python3"  # another user may not reach the environment's
    ran = subprocess.run(
        [python, "-B", "-c", script], cwd=ROOM, capture_output=True, text=True, user=65534, group=65534, timeout=60
    )
    assert ran.stderr == "" and len(ran.stdout.splitlines()) == 1, ran.stdout + ran.stderr
    assert "permitted" in ran.stdout or "denied" in ran.stdout


def test_rates_are_those_of_tc():
    assert link_rate("100mbit") == 1e8 and link_rate("1gbit") == 1e9 and link_rate("1.5Gbit") == 1.5e9
    assert link_rate("12mbps") == 96e6 and link_rate("64kibit") == 65536 and link_rate("30000bit") == 30000


def test_rates_are_written_for_people():
    written = [rate_words(words) for words in ("100mbit", "1.5Gbit", "64kbit", "2Mibit", "12mbps", "300bit")]
    assert written == ["100 Mb/s", "1.5 Gb/s", "64 kb/s", "2 Mib/s", "12 MB/s", "300 b/s"]


@pytest.mark.parametrize("words", ["", "fast", "100", "100 mbit", "-1mbit", "0mbit", "1bit", "nan", "9999gbit", "1e9bit", "100mbit\n"])
def test_a_rate_that_is_none_is_named_with_what_was_expected(words):
    with pytest.raises(ValueError, match="expected tc's form") as raised:
        link_rate(words)
    assert repr(words) in str(raised.value)
