"""A rank of one host listens only at addresses that no other host reaches, over any transport."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from support import begin, run_checks

import penstock.torch as hvd


def listening() -> list[str]:
    """ADDRESS:PORT of the sockets of this process that listen, or receive datagrams of anybody, in
    the kernel's form."""
    own = set()
    for file in Path("/proc/self/fd").iterdir():
        try:
            own.add(os.readlink(file))
        except OSError:
            continue  # the file of the listing, which is closed
    found = []
    for table, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in Path("/proc/self/net", table).read_text(encoding="ascii").splitlines()[1:]:
            words = line.split()
            if words[3] == state and f"socket:[{words[9]}]" in own:
                found.append(words[1])
    return found


def is_loopback(address: str) -> bool:
    """The first byte of an IPv4 address is 127. The text has the byte order of this machine."""
    host = address.split(":")[0]
    if len(host) == 8:
        first = host[6:] if sys.byteorder == "little" else host[:2]
        return first == "7F"
    return host == "00000000000000000000000001000000"


def check_nothing_listens_for_other_hosts() -> None:
    hvd.allreduce(torch.ones(4))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.ones(4))], 0.1))
    optimizer.step()
    hvd.allreduce(torch.ones(4))
    outside = [one for one in listening() if not is_loopback(one)]
    assert not outside, outside


if __name__ == "__main__":
    begin()
    run_checks(globals())
