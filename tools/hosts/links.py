"""Links by the words that commands take for them: a rate alone (hosts on one bridge), a rate with a distance, or a name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .far import FarHosts, Way
from .hosts import Hosts, link_rate, rate_words

NAMED = {"wan": "30mbit:50ms:0.1%"}
FORM = "a rate as tc writes it (100mbit), one with a round trip and a share of lost packets (30mbit:50ms:0.1%), or wan, which is that"
# Of congestion: Linux's default, cubic, gets a third of such a line through where a packet in a thousand is lost, BBR all but a tenth.
FAR_CONTROL = "bbr"

_FAR = re.compile(r"([^:]+):(\d+(?:\.\d+)?)ms(?::(\d+(?:\.\d+)?)%)?")


@dataclass(frozen=True)
class Near:
    """Hosts on one bridge."""

    rate: str

    @property
    def words(self) -> str:
        return rate_words(self.rate)

    def hosts(self, count: int) -> Hosts:
        return Hosts(count, self.rate)


@dataclass(frozen=True)
class Far:
    """Hosts with a distance between any two."""

    rate: str
    way: Way

    @property
    def words(self) -> str:
        lost = f", {100 * self.way.loss:g} % loss" if self.way.loss else ""
        return f"{rate_words(self.rate)}, {2 * self.way.delay_ms:g} ms round trip{lost}"

    def hosts(self, count: int) -> Hosts:
        return FarHosts(count, self.rate, self.way, control=FAR_CONTROL)


def link_of(words: str) -> Near | Far:
    """Errors: ValueError."""
    match = _FAR.fullmatch(NAMED.get(words, words))
    rate, round_trip_ms, loss = match.groups() if match else (words, None, None)
    way = Way(float(round_trip_ms or 0) / 2, loss=float(loss or 0) / 100)
    try:
        link_rate(rate)
    except ValueError as error:
        raise ValueError(f"{error}; a link is {FORM}") from None
    if way.delay_ms > 5000 or way.loss > 0.5:
        raise ValueError(f"the link is {words!r}, expected a round trip up to 10000ms and a loss up to 50%")
    return Far(rate, way) if match else Near(rate)


def link_words(words: str) -> str:
    """The same link as people write it: 30 Mb/s, 50 ms round trip, 0.1 % loss."""
    return link_of(words).words
