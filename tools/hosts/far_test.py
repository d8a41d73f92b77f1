"""Hosts with a distance: what comes out of the router is what was put in, and it says how it fares itself."""

import json
import os
import pathlib
import statistics
import subprocess
import sys

import pytest

ROOM = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOM))

from hosts import FarHosts, HostsError, Way, needed  # noqa: E402
from hosts import far as far_module  # noqa: E402
from hosts.hosts import SUBNET  # noqa: E402

needs_hosts = needed.needs_far_hosts()

FRAME = 28 + 14  # of a datagram: headers of UDP and IP, and of Ethernet, as tc counts a packet

# Sends every datagram back, or tells at an end of three datagrams what has come: numbers, and seconds from first to last.
FAR_END = f"""
import json, socket, struct, time
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
server.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS: when the kernel had it, not when this process ran
server.bind(("0.0.0.0", 7000))
print("listening", flush=True)
came, first, last = [], None, None
while True:
    packet, notes, _, peer = server.recvmsg(65536, 64)
    number, back = struct.unpack("!iB", packet[:5])
    if number < 0:
        break
    if back:
        server.sendto(packet, peer)
        continue
    seconds, nanoseconds = struct.unpack("qq", notes[0][2])
    last = seconds + 1e-9 * nanoseconds
    first = first or last
    came.append(number)
print(json.dumps([came, last and last - first]), flush=True)
"""

NEAR_END = """
import socket, struct, sys, time
address, count, size, gap_s = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
peer.settimeout(0.5)
start = time.perf_counter()
for number in range(count):
    while time.perf_counter() < start + number * gap_s:
        pass
    peer.sendto(struct.pack("!iB", number, 0) + bytes(size - 5), (address, 7000))
time.sleep(1)
for _ in range(20):
    peer.sendto(struct.pack("!iB", -1, 0), (address, 7000))
"""

ASK = """
import json, socket, struct, sys, time
address, count = sys.argv[1], int(sys.argv[2])
peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
peer.settimeout(float(sys.argv[3]))
took = []
for number in range(count):
    start = time.perf_counter()
    peer.sendto(struct.pack("!iB", number, 1), (address, 7000))
    try:
        while struct.unpack("!iB", peer.recv(100))[0] != number:
            pass
        took.append(1e3 * (time.perf_counter() - start))
    except TimeoutError:
        took.append(None)
print(json.dumps(took))
"""


def listen(hosts, host):
    far_end = hosts.start([sys.executable, "-c", FAR_END], host, stdout=subprocess.PIPE, text=True)
    assert far_end.stdout.readline() == "listening\n"
    return far_end


def send(hosts, count, size, gap_s=0.0, to=1):
    """The numbers of the datagrams that came, and the seconds between the first and the last."""
    far_end = listen(hosts, to)
    words = [sys.executable, "-c", NEAR_END, f"{SUBNET}.{10 + to}", str(count), str(size), str(gap_s)]
    assert hosts.start(words, 0).wait(timeout=60) == 0
    return json.loads(far_end.communicate(timeout=60)[0])


def rate_of(hosts, wanted, count, to=1):
    """Bits a second that came of `count` datagrams sent at 40 Mb/s, and their numbers. A sender that was stopped sends too little for
    a while, so the best of three counts."""
    for _ in range(3):
        came, seconds = send(hosts, count, 1472, 1472 * 8 / 40e6, to)
        rate = (len(came) - 1) * (1472 + FRAME) * 8 / seconds
        if rate == pytest.approx(wanted, rel=0.05):
            break
    return rate, came


def ask(hosts, to, count=20, by=0, limit_s=10.0):
    """Milliseconds until each of `count` answers, None where none came within the limit."""
    words = [sys.executable, "-c", ASK, f"{SUBNET}.{10 + to}", str(count), str(limit_s)]
    with hosts.start(words, by, stdout=subprocess.PIPE, text=True) as asking:
        return json.loads(asking.communicate(timeout=60)[0])


@needs_hosts
def test_a_line_lets_through_what_its_rate_says_and_loses_what_its_queue_does_not_hold():
    with FarHosts(2, "30mbit", Way(25.0)) as hosts:
        rate, came = rate_of(hosts, 30e6, 4000)  # a third more than the line takes
        report = hosts.report()
    assert rate == pytest.approx(30e6, rel=0.05)
    assert came == sorted(came) and report.dropped >= 4000 - len(came) and report.lost == 0


@needs_hosts
def test_a_round_trip_takes_both_ways_and_jitter_stays_within_its_bounds():
    with FarHosts(3, "30mbit", Way(25.0)) as hosts:
        hosts.set_way(0, 2, Way(40.0, jitter_ms=10.0))
        far_ends = [listen(hosts, host) for host in (1, 2)]
        steady, moved = ask(hosts, 1), ask(hosts, 2, 60)
    for one in far_ends:
        one.communicate(timeout=30)  # they end with the hosts
    assert statistics.median(steady) == pytest.approx(50.0, rel=0.05)
    assert statistics.median(moved) == pytest.approx(80.0, rel=0.1) and max(moved) - min(moved) > 10
    assert min(moved) >= 60.0


@needs_hosts
def test_as_many_packets_are_lost_as_was_said_and_the_same_ones_for_the_same_seed():
    def numbers(seed):
        with FarHosts(2, "200mbit", Way(5.0, loss=0.05), seed) as hosts:
            return set(send(hosts, 40_000, 60, 20e-6)[0])

    one, again, other = numbers(1), numbers(1), numbers(2)
    assert one == again != other
    for came in (one, other):
        assert 40_000 - len(came) == pytest.approx(0.05 * 40_000, rel=0.05)


@needs_hosts
def test_a_pair_that_is_cut_hears_nothing_of_each_other_until_it_is_restored_and_others_do():
    with FarHosts(3, "30mbit", Way(5.0)) as hosts:
        far_ends = [listen(hosts, host) for host in (1, 2)]
        hosts.cut(0, 1)
        assert ask(hosts, 1, 1, limit_s=0.5) == [None] and None not in ask(hosts, 2, 1) and None not in ask(hosts, 2, 1, by=1)
        hosts.restore(0, 1)
        assert None not in ask(hosts, 1, 1)
        hosts.cut(2)
        assert ask(hosts, 2, 1, limit_s=0.5) == [None] and None not in ask(hosts, 1, 1)
    for one in far_ends:
        one.communicate(timeout=30)


@needs_hosts
def test_each_host_has_a_line_of_its_own():
    with FarHosts(3, "50mbit", Way(5.0)) as hosts:
        hosts.set_line(2, "10mbit")
        rates = [rate_of(hosts, wanted, 1500, to)[0] for to, wanted in ((1, 40e6), (2, 10e6))]
    assert rates[0] > 35e6 and rates[1] == pytest.approx(10e6, rel=0.05)


@needs_hosts
def test_it_tells_how_late_it_was_and_what_it_took_of_a_processor():
    with FarHosts(2, "100mbit", Way(10.0)) as hosts:
        hosts.report()
        send(hosts, 8000, 1472, 1472 * 8 / 90e6)
        report = hosts.report()
    assert report.delivered >= 8000 and 0 < report.processor < 0.5
    assert 0 <= report.late_ms <= report.most_late_ms
    assert report.late_ms < 1.0, report.words()


@needs_hosts
def test_rates_at_which_it_would_fall_behind_are_refused_with_what_it_can_do():
    with pytest.raises(HostsError, match=r"would fall behind: lines of [\d.e+]+ Mb/s together .*expected at most 50 %") as refused:
        FarHosts(2, "900gbit", Way(5.0)).__enter__()
    assert "\n" not in str(refused.value)
    with FarHosts(2, "100mbit", Way(5.0)) as hosts:
        with pytest.raises(HostsError, match="would fall behind"):
            hosts.set_line(1, "900gbit")
        hosts.set_line(1, "30mbit")  # it goes on


@needs_hosts
@pytest.mark.parametrize("way", [Way(-1.0), Way(1.0, -1.0), Way(1.0, loss=1.5), Way(float("nan"))])
def test_a_way_that_means_nothing_is_refused(way):
    with pytest.raises(HostsError, match='was told "way 1 0'):
        FarHosts(2, "1mbit", way).__enter__()


@needs_hosts
def test_a_stream_of_tcp_fills_the_line():
    receive = f"import socket; s = socket.create_server(('{SUBNET}.11', 7000)); print(flush=True); p, _ = s.accept()\nwhile p.recv(65536): pass\np.sendall(b'1')"
    stream = (f"import socket, time; p = socket.create_connection(('{SUBNET}.11', 7000)); t = time.perf_counter(); p.sendall(bytes(6_000_000)); "
              "p.shutdown(1); p.recv(1); print(48e6 / (time.perf_counter() - t))")  # fmt: skip
    rates = []
    with FarHosts(2, "30mbit", Way(25.0)) as hosts:
        while len(rates) < 3 and not (rates and rates[-1] > 20e6):  # a stopped process sends too little
            receiver = hosts.start([sys.executable, "-c", receive], 1, stdout=subprocess.PIPE, text=True)
            receiver.stdout.readline()
            with hosts.start([sys.executable, "-c", stream], 0, stdout=subprocess.PIPE, text=True) as sender:
                rates.append(float(sender.communicate(timeout=60)[0]))
            receiver.communicate(timeout=30)
    assert 20e6 < max(rates) < 30e6  # it begins slowly, and headers count


@needs_hosts
def test_a_control_of_congestion_that_the_kernel_lacks_is_named_with_those_that_it_has():
    with pytest.raises(HostsError, match="no control of congestion named 'nothing', only .*cubic.*; modprobe tcp_nothing"):
        FarHosts(2, "1mbit", Way(5.0), control="nothing").__enter__()


@needs_hosts
def test_a_router_that_has_ended_is_named_and_nothing_waits_for_it():
    end = "for one in /proc/[0-9]*; do case $(cat $one/comm) in router-*) kill -KILL ${one#/proc/};; esac; done"
    with FarHosts(2, "1mbit", Way(5.0)) as hosts:
        hosts.start(["sh", "-c", end], 0, stderr=subprocess.DEVNULL).wait(timeout=30)
        with pytest.raises(HostsError, match="the router between the hosts has ended|Killed"):
            hosts.report()


@needs_hosts
def test_what_runs_there_announces_no_message_first_unless_told_to():
    said = "import os; print(os.environ['UCX_RNDV_THRESH'], os.environ['OMPI_MCA_btl_tcp_eager_limit'])"
    with FarHosts(2, "30mbit", Way(5.0)) as hosts:
        with hosts.start([sys.executable, "-c", said], 1, stdout=subprocess.PIPE, text=True) as one:
            assert one.communicate(timeout=30)[0] == "inf 524288\n"
        theirs = os.environ | {"UCX_RNDV_THRESH": "8k"}
        with hosts.start([sys.executable, "-c", said], 1, env=theirs, stdout=subprocess.PIPE, text=True) as one:
            assert one.communicate(timeout=30)[0] == "8k 524288\n"


def test_where_there_is_no_tun_one_sentence_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(far_module, "TUN", tmp_path / "tun")
    with pytest.raises(HostsError, match="tun cannot be opened here, which hosts with a distance between them need"):
        FarHosts(2, "1mbit", Way(1.0)).__enter__()


def test_without_a_compiler_one_sentence_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(far_module, "BUILT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostsError, match="no C.. compiler is on the PATH"):
        far_module.router()
