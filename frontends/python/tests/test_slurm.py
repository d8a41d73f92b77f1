"""README's two lines under a real Slurm, on one node of this host."""

import sys
import tempfile
from pathlib import Path

import pytest
from launch import HERE
from slurm import Cluster, missing

HELLO = (sys.executable, "-m", "penstock.hello")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
TOGETHER = "2 ranks have averaged over ucx"

pytestmark = pytest.mark.skipif(
    bool(missing()), reason=f"Slurm is not installed here: no {', '.join(missing())}"
)


@pytest.fixture(scope="module")
def cluster():
    # A short path, because sockets are in this folder.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ps") as folder:
        started = Cluster(Path(folder))
        started.environment["PYTHONPATH"] = str(HERE.parent)
        yield started
        started.stop()


def succeed(ended, *words):
    code, output = ended
    assert code == 0 and all(word in output for word in words), f"exit code {code}\n{output}"


def test_tasks_of_srun_are_ranks_without_variables_of_the_user(cluster):
    succeed(cluster.run("srun", "-n", "2", *HELLO), TOGETHER)


def test_torchrun_in_a_task_of_srun_speaks_for_its_ranks(cluster):
    succeed(cluster.run("srun", "-n", "1", *TORCHRUN, "-m", "penstock.hello"), TOGETHER)


def test_a_script_of_horovods_shape_finds_its_ranks_below_srun(cluster, tmp_path):
    script = tmp_path / "sums.py"
    script.write_text(
        "import torch, penstock.torch as hvd\n"
        "hvd.init()\n"
        "total = hvd.allreduce(torch.ones(3), op=hvd.Sum)[0].item()\n"
        "print(f'rank {hvd.rank()} of {hvd.size()}, {hvd.local_size()} here: {total}\\n', end='')\n"
    )
    ended = cluster.run("srun", "-n", "2", sys.executable, script)
    succeed(ended, "rank 0 of 2, 2 here: 2.0", "rank 1 of 2, 2 here: 2.0")


def test_tasks_are_ranks_also_where_srun_offers_a_pmi(cluster):
    succeed(cluster.run("srun", "--mpi=pmi2", "-n", "2", *HELLO), TOGETHER)


def test_a_single_task_of_srun_is_a_run_of_one(cluster):
    alone = "import penstock.torch as hvd; hvd.init(); print(hvd.rank(), 'of', hvd.size())"
    succeed(cluster.run("srun", "-n", "1", sys.executable, "-c", alone), "0 of 1")
    # As in the interactive step of an salloc for two tasks.
    succeed(cluster.run("srun", "-n", "1", "env", "SLURM_NTASKS=2", "SLURM_NPROCS=2",
                        sys.executable, "-c", alone), "0 of 1")  # fmt: skip


def test_a_batch_script_that_names_the_store_and_the_number_of_ranks_may(cluster, tmp_path):
    # Like many users' scripts, whose programs read the rank from SLURM_PROCID. The script also runs
    # torchrun without srun, so that Slurm's variables describe the job and not a rank.
    script, output = tmp_path / "job.sh", tmp_path / "job.out"
    script.write_text(
        "#!/bin/bash\n"
        f"{' '.join(TORCHRUN)} -m penstock.hello || exit\n"
        "export MASTER_ADDR=localhost MASTER_PORT=$((10000 + SLURM_JOB_ID % 10000))\n"
        "export WORLD_SIZE=$SLURM_NTASKS\n"
        f"srun {' '.join(HELLO)}\n"
    )
    code, said = cluster.run("sbatch", "--wait", "-n", "2", "-o", output, script)
    text = output.read_text() if output.exists() else said
    assert code == 0 and text.count(TOGETHER) == 2, f"exit code {code}\n{text}"
