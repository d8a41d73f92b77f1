"""Horovod's environment variables: the honoured ones, and the ones that a line at the start names
because they have no effect. docs/configuration.md has the table for users."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from penstock.common.runtime import Topology

# Read by the runtime or by this package; a wrong world (SIZE, RANK) is an error of the runtime.
HONOURED = frozenset(
    "HOROVOD_" + name
    for name in (
        "RANK",
        "SIZE",
        "FUSION_THRESHOLD",
        "TIMELINE",
        "STALL_CHECK_DISABLE",
        "STALL_CHECK_TIME_SECONDS",
        "STALL_SHUTDOWN_TIME_SECONDS",
        "DYNAMIC_PROCESS_SETS",
        "LOG_LEVEL",
    )
)

# Set by the launcher. They have no effect and are named only if they differ from the topology.
_TOPOLOGY = MappingProxyType(
    {
        f"HOROVOD_{name.upper()}": name
        for name in ("local_rank", "local_size", "cross_rank", "cross_size")
    }
)

# Horovod's other variables, with the reason why they have no effect, or the alternative.
NOT_HONOURED = MappingProxyType(
    {
        "HOROVOD_TIMELINE_MARK_CYCLES": "there are no cycles",
        "HOROVOD_CYCLE_TIME": "nothing waits for a cycle",
        "HOROVOD_CACHE_CAPACITY": "plans take the place of the cache",
        "HOROVOD_DISABLE_GROUP_FUSION": "the scheduler decides which gradients share a bucket",
        "HOROVOD_LOG_HIDE_TIME": "not yet",
        "HOROVOD_LOG_TIMESTAMP": "not yet",
        "HOROVOD_HIERARCHICAL_ALLREDUCE": 'use route = "hierarchical" in [scheme]',
        "HOROVOD_HIERARCHICAL_ALLGATHER": "not yet",
        "HOROVOD_TORUS_ALLREDUCE": "not yet",
        "HOROVOD_AUTOTUNE": "not yet; schedulers plan by themselves",
        "HOROVOD_NUM_NCCL_STREAMS": "there is one stream for NCCL",
        "HOROVOD_THREAD_AFFINITY": "not yet",
        "HOROVOD_ELASTIC": "not yet",
        "HOROVOD_RENDEZVOUS_ADDR": "the launcher connects ranks",
        "HOROVOD_RENDEZVOUS_PORT": "the launcher connects ranks",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "there is no Gloo; the launcher connects ranks",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "there is no Gloo; the launcher connects ranks",
        "HOROVOD_GLOO_IFACE": "there is no Gloo",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "there is no Gloo; use deadline_s in [runtime]",
        "HOROVOD_HOSTNAME": "the host name comes from the system",
    }
)
# Families of Horovod's variables, by the beginning of their names.
_FAMILIES = ("HOROVOD_AUTOTUNE",)
# Only the value "mpi" is available.
_TRANSPORTS = frozenset(("HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"))
# With these values a switch asks for nothing.
_OFF = frozenset(("", "0", "false", "off", "no"))


def without_effect(environment: Mapping[str, str], topology: Topology) -> list[str]:
    """Horovod's variables that are set and have no effect, each with its reason, in the order of
    names. Variables that are empty or switched off are left out."""
    found = []
    for name in sorted(environment):
        value = environment[name].strip()
        if not name.startswith("HOROVOD_") or name in HONOURED or value.lower() in _OFF:
            continue
        reason = _reason(name, value, topology)
        if reason:
            found.append(f"{name} ({reason})")
    return found


def _reason(name: str, value: str, topology: Topology) -> str:
    if name in _TRANSPORTS:
        return "" if value.lower() == "mpi" else "collective in [scheme] chooses the transport"
    if name in _TOPOLOGY:
        own = getattr(topology, _TOPOLOGY[name])
        return "" if value == str(own) else f"the launcher says {own}"
    if name in NOT_HONOURED:
        return NOT_HONOURED[name]
    for family in _FAMILIES:
        if name.startswith(family + "_"):
            return NOT_HONOURED[family]
    return "unknown"


def line(environment: Mapping[str, str], topology: Topology) -> str:
    """One line that names all variables without effect; empty if there are none."""
    found = without_effect(environment, topology)
    if not found:
        return ""
    return (
        "penstock warning: no effect of "
        + ", ".join(found)
        + "; docs/configuration.md lists the variables that have an effect"
    )
