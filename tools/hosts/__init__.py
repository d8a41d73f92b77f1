"""Hosts on this machine, joined by links of a given rate and distance: what a network does to a run, without a network."""

from .far import FarHosts, Way
from .hosts import Hosts, HostsError, link_rate, rate_words
from .links import link_of, link_words

__all__ = ["FarHosts", "Hosts", "HostsError", "Way", "link_of", "link_rate", "link_words", "rate_words"]
