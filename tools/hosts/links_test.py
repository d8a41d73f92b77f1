"""Links by their words."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from hosts import FarHosts, Hosts, Way, link_of, link_words  # noqa: E402


def test_a_rate_alone_joins_hosts_by_a_bridge():
    assert link_words("100mbit") == "100 Mb/s" and type(link_of("100mbit").hosts(2)) is Hosts


def test_a_rate_with_a_round_trip_is_a_distance():
    hosts = link_of("30mbit:50ms:0.1%").hosts(2)
    assert isinstance(hosts, FarHosts) and hosts.rate == "30mbit" and hosts.way == Way(25.0, loss=0.001)
    assert link_of("1gbit:10ms").hosts(2).way == Way(5.0)


def test_wan_is_one_of_them_by_name():
    assert link_of("wan") == link_of("30mbit:50ms:0.1%")
    assert link_words("wan") == "30 Mb/s, 50 ms round trip, 0.1 % loss" and link_words("1gbit:10ms") == "1 Gb/s, 10 ms round trip"


@pytest.mark.parametrize("words", ["", "lan", "30mbit:50", "30mbit:ms", "50ms", "30mbit:50ms:1", "30mbit:-5ms", "fast:50ms", "30mbit:50ms:0.1%:"])
def test_a_link_that_is_none_is_named_with_what_was_expected(words):
    with pytest.raises(ValueError, match="a link is a rate as tc writes it .*, or wan"):
        link_of(words)


@pytest.mark.parametrize("words", ["30mbit:10001ms", "30mbit:50ms:51%"])
def test_a_link_beyond_all_bounds_is_named(words):
    with pytest.raises(ValueError, match=f"the link is '{words}', expected a round trip up to"):
        link_of(words)
