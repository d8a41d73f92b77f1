"""Every file of conf/ on real ranks: equal parameters everywhere, and a saved run continues to the bit in new
processes.

Files that can take the routes hierarchical and shard are also tested on these routes: some of them, and with TEST_LONG
all of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from long_runs import IS_LONG

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools"))

from hosts.hosts import SUBNET, Hosts, HostsError  # noqa: E402
from quickstart_job import launch, toml_text  # noqa: E402
from quickstart_job.recipes import CONF  # noqa: E402

DEADLINE_S = 1500  # on two cores with other work
RANKS = 3  # two ranks would give equal sums in either order


def test_a_saved_run_goes_on_to_the_bit_and_ranks_agree() -> None:
    """Over MPI. With TEST_LONG the saves also continue over UCX, under torchrun."""
    over_ucx = [("resume", launch.command_of_torchrun)] if IS_LONG else []
    with tempfile.TemporaryDirectory() as folder:  # a hundred megabytes that no later test needs
        for mode, command in (("straight", launch.command), ("resume", launch.command), *over_ucx):
            line = command(RANKS, [str(HERE / "every_conf.py"), mode, folder])
            ran = subprocess.run(line, env=launch.environment(), capture_output=True, text=True, timeout=DEADLINE_S)
            assert ran.returncode == 0, f"{mode}: status {ran.returncode}\n{ran.stdout[-4000:]}\n{ran.stderr[-4000:]}"
            assert " files, 0 failed" in ran.stdout, ran.stdout


def files_for(route: str, folder: Path, always: set[str]) -> list[str]:
    """The files of conf/ that `penstock config check` accepts with the route: those named, and of the others every
    eighth, and with TEST_LONG all."""
    names = []
    for path in sorted(CONF.glob("*.toml")):
        table = toml_text.replaced(toml_text.load(path), {"scheme.route": route})
        changed = folder / path.name
        changed.write_text(toml_text.dump(table))
        checked = subprocess.run([launch.PENSTOCK, "config", "check", changed], capture_output=True, text=True, timeout=60)
        if checked.returncode == 0:
            names.append(path.name)
        else:
            assert route in checked.stdout + checked.stderr or "owner_memory" in checked.stdout + checked.stderr, checked.stdout
    assert always <= set(names)
    others = [name for name in names if name not in always]
    return sorted(always) + others[:: 1 if IS_LONG else 8]


def test_files_that_can_take_route_shard_train_and_resume_on_it() -> None:
    with tempfile.TemporaryDirectory() as folder:
        names = files_for("shard", Path(folder), {"one-bit-sharded.toml", "qsgd-sharded.toml", "topk-residual.toml", "ef-sign.toml"})
        for mode in ("straight", "resume"):
            line = launch.command(RANKS, [str(HERE / "every_conf.py"), mode, folder, "shard", *names])
            ran = subprocess.run(line, env=launch.environment(), capture_output=True, text=True, timeout=DEADLINE_S)
            assert ran.returncode == 0, f"{mode}: status {ran.returncode}\n{ran.stdout[-4000:]}\n{ran.stderr[-4000:]}"
            assert f"{len(names)} files, 0 failed" in ran.stdout, ran.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="hosts are made of network namespaces, which needs root")
def test_files_that_can_take_route_hierarchical_train_and_resume_on_hosts_of_two_ranks() -> None:
    """Over MPI on both levels. The saves continue with UCX inside the hosts."""
    with tempfile.TemporaryDirectory() as folder:
        names = files_for("hierarchical", Path(folder), {"dgc-hierarchical.toml", "power-sgd.toml", "signum.toml", "s-sgd.toml"})
        ucx_inside = Path(folder) / "ucx-inside"
        ucx_inside.write_text('[transport]\nlocal = "ucx"\n')
        ucx = {"PENSTOCK_CONFIG": str(ucx_inside), "MASTER_ADDR": f"{SUBNET}.10", "MASTER_PORT": "29713"}
        try:
            with Hosts(2, "1gbit", ranks_per_host=2) as hosts:
                for mode, variables in (("straight", {}), ("resume", {}), ("resume", ucx)):
                    command = [sys.executable, HERE / "every_conf.py", mode, folder, "hierarchical", *names]
                    out = hosts.mpirun(command, environment=launch.environment() | variables, timeout_s=DEADLINE_S)
                    assert f"{len(names)} files, 0 failed" in out, out
        except HostsError as error:
            pytest.skip(f"hosts cannot be made here: {error}")
