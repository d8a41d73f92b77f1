"""Horovod itself, of build/horovod (build_horovod puts it there), as a contestant of tools/bench step: every gradient handed to
its allreduce_async_ as soon as it is there, as Horovod's DistributedOptimizer does, over its gloo, with its default settings.

Its ranks meet through Horovod's own rendezvous, which rank 0 serves; horovodrun would start one process for that."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

import torch.distributed as dist

from benches.step.contestants import HOROVOD
from benches.step.ways import Backward, Way


def own_address() -> str:
    """From which this rank reaches the first one. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.connect((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        return str(found.getsockname()[0])


def rendezvous(interface: str) -> Any:
    """Sets the variables that `horovodrun --gloo` would, for one rank on each host; returns what must live on, on rank 0."""
    from horovod.runner.common.util.hosts import SlotInfo
    from horovod.runner.http.http_server import RendezvousServer

    rank, size = dist.get_rank(), dist.get_world_size()
    addresses: list[str] = [""] * size
    dist.all_gather_object(addresses, own_address())
    slots = [SlotInfo(hostname=address, rank=one, local_rank=0, cross_rank=one, size=size, local_size=1, cross_size=size) for one, address in enumerate(addresses)]
    server, port = None, [0]
    if rank == 0:
        server = RendezvousServer()
        port = [server.start()]
        server.init(slots)
    dist.broadcast_object_list(port, 0)
    mine = slots[rank]
    os.environ |= {
        "HOROVOD_HOSTNAME": mine.hostname, "HOROVOD_RANK": str(rank), "HOROVOD_SIZE": str(size), "HOROVOD_LOCAL_RANK": "0", "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_RANK": str(rank), "HOROVOD_CROSS_SIZE": str(size), "HOROVOD_GLOO_RENDEZVOUS_ADDR": os.environ["MASTER_ADDR"],
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port[0]), "HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo", "HOROVOD_GLOO_IFACE": interface,
    }  # fmt: skip
    return server


class Horovod(Way):
    """Results lie in place of the gradients. Errors: ImportError where build/horovod lacks it."""

    warm_up = 4  # it negotiates the first steps, then knows the answers

    def __init__(self, backward: Backward) -> None:
        super().__init__(backward)
        sys.path.append(str(HOROVOD))
        import horovod.torch as horovod

        self.horovod = horovod
        self.server = rendezvous(os.environ["GLOO_SOCKET_IFNAME"])
        horovod.init()

    def step(self) -> None:
        self.backward.start()
        handles = []
        for number in self.backward.order:
            self.backward.reach(number)
            name = self.backward.gradients[number].name
            handles.append(self.horovod.allreduce_async_(self.backward.view(number), name=name, op=self.horovod.Average))
        for handle in handles:
            self.horovod.synchronize(handle)

    def end(self) -> None:
        self.horovod.shutdown()
        if self.server:
            self.server.stop()
