"""Sets the variables that torch's init_process_group needs, if srun or mpirun has set only its own
variables. A script then starts without changes under every launcher. Variables that are set
stay."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, MutableMapping

_FIRST_PORT, _PORTS = 10000, 10000  # below the ports of Penstock's own store and of systems


def fill_in(environment: MutableMapping[str, str] = os.environ) -> None:
    """Sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT if this process is one of
    several and has no RANK. Does nothing if a batch script has set a WORLD_SIZE that differs from
    the launcher's number."""
    if "RANK" in environment:
        return
    found = _of_mpirun(environment) or _of_srun(environment)
    if not found or environment.get("WORLD_SIZE", found["WORLD_SIZE"]) != found["WORLD_SIZE"]:
        return
    if int(found["WORLD_SIZE"]) > 1:
        for name, value in found.items():
            environment.setdefault(name, value)


def _of_mpirun(environment: Mapping[str, str]) -> dict[str, str] | None:
    """The variables of a process that mpirun started, if all processes are on this host: no
    variable of mpirun names a host that all processes can reach."""
    prefix = "OMPI_COMM_WORLD_"
    names = {"RANK": "RANK", "WORLD_SIZE": "SIZE", "LOCAL_RANK": "LOCAL_RANK"}
    found = {name: environment.get(prefix + theirs, "") for name, theirs in names.items()}
    is_here = environment.get(prefix + "LOCAL_SIZE") == found["WORLD_SIZE"]
    run = environment.get("PMIX_NAMESPACE") or environment.get("OMPI_MCA_ess_base_jobid") or ""
    if not all(value.isdigit() for value in found.values()) or not is_here or not run:
        return None
    return {**found, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _port(run)}


def _of_srun(environment: Mapping[str, str]) -> dict[str, str] | None:
    """The variables of a process of a Slurm step. In a batch script outside a step, Slurm's
    variables describe the job, so the result is None there."""
    names = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS", "LOCAL_RANK": "SLURM_LOCALID"}
    found = {name: environment.get(theirs, "") for name, theirs in names.items()}
    found["WORLD_SIZE"] = environment.get("SLURM_STEP_NUM_TASKS") or found["WORLD_SIZE"]
    step, nodes = environment.get("SLURM_STEP_ID"), environment.get("SLURM_STEP_NODELIST")
    if not all(value.isdigit() for value in found.values()) or not step or not nodes:
        return None
    job = f"{environment.get('SLURM_JOB_ID', '')}.{step}"
    return {**found, "MASTER_ADDR": first_host(nodes), "MASTER_PORT": _port(job)}


def _port(run: str) -> str:
    return str(_FIRST_PORT + zlib.crc32(run.encode()) % _PORTS)


def first_host(nodes: str) -> str:
    """The first host of a Slurm node list: "node03" for "node[03-07,9],other"."""
    end = min((at for at in (nodes.find("["), nodes.find(",")) if at >= 0), default=len(nodes))
    if end == len(nodes) or nodes[end] == ",":
        return nodes[:end]
    number = nodes[end + 1 :]
    stop = min(at for at in (number.find("-"), number.find(","), number.find("]")) if at >= 0)
    return nodes[:end] + number[:stop]
