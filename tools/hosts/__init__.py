"""Hosts on this machine, joined by links of a given rate: what a network does to a run, without a network."""

from .hosts import Hosts, HostsError, link_rate, rate_words

__all__ = ["Hosts", "HostsError", "link_rate", "rate_words"]
