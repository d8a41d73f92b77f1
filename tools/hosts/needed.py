"""For tests: marks of those that need hosts, which say why none can be made here."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from .far import FarHosts, Way
from .hosts import Hosts, HostsError


def _mark(kind: str, make: Callable[[], Hosts]) -> pytest.MarkDecorator:
    try:
        with make():
            why_not = ""
    except HostsError as error:
        why_not = str(error)
    return pytest.mark.skipif(bool(why_not), reason=f"no {kind} can be made here: {why_not}")


@functools.cache
def needs_hosts() -> pytest.MarkDecorator:
    return _mark("hosts", lambda: Hosts(1, "1gbit"))


@functools.cache
def needs_far_hosts() -> pytest.MarkDecorator:
    return _mark("far hosts", lambda: FarHosts(1, "1mbit", Way(1.0)))
