"""Where ranks meet below torchrun. Its agent keeps a store at MASTER_PORT, through which rank 0 tells
a port that it has got from the system and a token that no other run has: of two jobs at neighbouring
ports neither takes the other's."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator
from datetime import timedelta

import torch.distributed as dist

_PORT, _TOKEN = "PENSTOCK_PORT", "PENSTOCK_TOKEN"
_CONNECT = timedelta(seconds=30)  # the agent is there before its ranks
_PATIENCE_S = 1800.0  # as `meeting_timeout_s`
_WARNING_S = 10.0
_PAUSE_S = 0.05

# Ranks open their runs in one order.
_runs = itertools.count()


def _is_there() -> bool:
    """Not where the user has named a port: that one counts."""
    environment = os.environ
    return (
        environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        and environment.get("WORLD_SIZE", "1") != "1"
        and _PORT not in environment
        and dist.is_available()
    )


def _open() -> dist.Store:
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        store = dist.TCPStore(host, port, is_master=False, timeout=_CONNECT, wait_for_workers=False)
    except RuntimeError as error:
        raise RuntimeError(
            f"torchrun's store at {host}:{port} cannot be reached, through which the ranks of a run "
            f"meet: {error}; set {_PORT} to a free port of rank 0's host, the same for all ranks"
        ) from error
    # Ranks that were started anew do not find what the ones before them left.
    return dist.PrefixStore(f"penstock/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def _hear(store: dist.Store, key: str) -> str:
    """Polls: a wait inside torch's store could not be interrupted."""
    began = warned = time.monotonic()
    while not store.check([key]):
        now = time.monotonic()
        if now - began > _PATIENCE_S:
            raise TimeoutError(
                f"waited {now - began:.0f} s for rank 0 to come to hvd.init(), or to its first backward"
            )
        if now - warned > _WARNING_S:
            warned = now
            print(
                f"penstock warning: rank {os.environ.get('RANK')} has waited {now - began:.0f} s for "
                "rank 0 to come to hvd.init(), or to its first backward",
                file=sys.stderr,
                flush=True,
            )
        time.sleep(_PAUSE_S)
    return store.get(key).decode()


@contextlib.contextmanager
def place() -> Iterator[None]:
    """While it lasts, PENSTOCK_PORT and PENSTOCK_TOKEN say where the ranks below a torchrun meet."""
    if not _is_there():
        yield
        return
    store, key = _open(), str(next(_runs))
    before = {name: os.environ.get(name) for name in (_PORT, _TOKEN)}
    with socket.socket() as held:
        if os.environ.get("RANK") == "0":
            # Bound and not listening it keeps the port for this process, where the core may listen.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("", 0))
            store.set(key, f"{held.getsockname()[1]} {before[_TOKEN] or secrets.token_hex(16)}")
        os.environ[_PORT], os.environ[_TOKEN] = _hear(store, key).split(" ", 1)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
