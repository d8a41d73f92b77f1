"""Launchers, with right and wrong worlds: a program that is alone among several says so instead of training alone."""

import os
import subprocess
import sys

import pytest
from command_test import BUILD, ROOT, needs_mpirun, penstock

pytestmark = needs_mpirun

PROGRAM = """
import pathlib, sys
from penstock.common.runtime import Runtime
runtime = Runtime("", sys.argv[1], "a test")
world = runtime.topology
pathlib.Path(__file__).with_name(f"world.{world.rank}").write_text(f"world {world.rank} {world.size}")
runtime.close()
"""
MPI = '[scheme]\ncollective = "mpi"\n'
LOOPBACK = '[scheme]\ncollective = "loopback"\n'
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "frontends/python"), "PENSTOCK_LIBRARY": str(BUILD / "lib/libpenstock.so")}


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return file


def start(*command, **variables):
    return subprocess.run([str(word) for word in command], env={**os.environ, **ENVIRONMENT, **variables},
                          capture_output=True, text=True, timeout=300, check=False)


def worlds(program):
    """What the ranks wrote since the last call: files, since mpirun may mix the words that ranks print."""
    files = sorted(program.parent.glob("world.*"))
    said = [file.read_text() for file in files]
    for file in files:
        file.unlink()
    return said


def test_penstock_run_and_mpirun_make_one_world(program):
    ran = penstock("run", "-np", 2, "--", sys.executable, program, MPI, **ENVIRONMENT)
    assert ran.returncode == 0, ran.stderr
    assert worlds(program) == ["world 0 2", "world 1 2"]
    ran = start("mpirun", "-np", 2, "--oversubscribe", "--allow-run-as-root", sys.executable, program, MPI)
    assert ran.returncode == 0, ran.stderr
    assert worlds(program) == ["world 0 2", "world 1 2"]


def test_variables_of_an_outer_or_earlier_launcher_do_no_harm(program):
    ran = penstock("run", "-np", 2, "--", sys.executable, program, MPI, **ENVIRONMENT, SLURM_STEP_ID="0",
                   SLURM_STEP_NUM_TASKS="8", SLURM_NTASKS="8", SLURM_PROCID="5", WORLD_SIZE="1", RANK="0")
    assert ran.returncode == 0, ran.stderr
    assert worlds(program) == ["world 0 2", "world 1 2"]


@pytest.mark.long
def test_torchrun_with_mpi_is_refused(program):
    ran = start(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", 2, "--master-port", 0, program, MPI)
    assert ran.returncode != 0 and not worlds(program)
    assert "this process is alone over 'mpi'" in ran.stderr and "WORLD_SIZE=2" in ran.stderr
    assert "penstock run -np" in ran.stderr


@pytest.mark.parametrize("variables, named", [
    ({"SLURM_STEP_ID": "0", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, "SLURM_NTASKS=4"),
    ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"}, "SLURM_STEP_NUM_TASKS=4"),
    ({"PMI_SIZE": "3", "PMI_RANK": "0"}, "PMI_SIZE=3"),
    ({"HOROVOD_SIZE": "2", "HOROVOD_RANK": "0"}, "HOROVOD_SIZE=2")], ids=lambda value: str(value)[:12])
def test_a_process_alone_among_several_is_refused(variables, named, program):
    ran = start(sys.executable, program, LOOPBACK, **variables)
    assert ran.returncode != 0 and "alone over 'loopback'" in ran.stderr and named in ran.stderr


def test_a_transport_that_knows_one_rank_is_refused_under_mpirun(program):
    ran = penstock("run", "-np", 2, "--", sys.executable, program, LOOPBACK, **ENVIRONMENT)
    assert ran.returncode != 0 and not worlds(program)
    assert "OMPI_COMM_WORLD_SIZE=2" in ran.stderr


def test_a_batch_script_of_slurm_may_start_one_process(program):
    ran = start(sys.executable, program, LOOPBACK, SLURM_NTASKS="4", SLURM_PROCID="0", SLURM_JOB_ID="7")
    assert ran.returncode == 0, ran.stderr
    assert worlds(program) == ["world 0 1"]


def test_the_configuration_of_penstock_run_wins_over_init_and_says_so(program, tmp_path):
    text = '[runtime]\nlog_level = "info"\nseed = {}\n'
    (tmp_path / "run.toml").write_text(text.format(7))
    (tmp_path / "init.toml").write_text(text.format(8))
    program.write_text(f"""
from penstock.common.runtime import Runtime
runtime = Runtime({str(tmp_path / "init.toml")!r}, "", "a test")
print("seed", runtime.report()["seed"])
runtime.close()
""")
    ran = penstock("run", "-np", 1, "--config", tmp_path / "run.toml", "--", sys.executable, program, **ENVIRONMENT)
    assert ran.returncode == 0 and "seed 7" in ran.stdout, ran.stderr
    assert f"run.toml of penstock run --config; it wins over {tmp_path}/init.toml" in ran.stderr
    ran = penstock("run", "-np", 1, "--", sys.executable, program, **ENVIRONMENT, PENSTOCK_CONFIG=str(tmp_path / "run.toml"))
    assert ran.returncode == 0 and "seed 8" in ran.stdout, ran.stderr
    assert f"{tmp_path}/init.toml, given to init" in ran.stderr
