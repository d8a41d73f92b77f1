"""The rank of a process under any launcher: README's two lines, and the lines of rank 0."""

import os
import re
import shutil
import subprocess
import sys
import threading
import time

import pytest
import torch.distributed as dist
from launch import HERE, MPIRUN
from long_runs import cases
from warm_python import executable as warm

from penstock.torch import identity

SCRIPTS = HERE / "scripts"
HELLO = ("-m", "penstock.hello")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def start(*command, **variables):
    """Runs `python COMMAND` without the caller's variables of ranks; both outputs together."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1"}
    for name in ("RANK", "WORLD_SIZE", "PENSTOCK_CONFIG", "PENSTOCK_LOG_LEVEL"):
        environment.pop(name, None)
    environment["PYTHON_EXEC"] = str(command[0])  # the command that torchrun starts
    return subprocess.Popen(
        [str(word) for word in command], env={**environment, **variables}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def run(*command, **variables):
    """The output of the process, which must end well."""
    ended, output = finish(start(*command, **variables))
    assert ended == 0, output
    return output


def finish(process):
    try:
        output, _ = process.communicate(timeout=180)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    return process.returncode, output


# ---- launchers ----


@pytest.mark.parametrize("method", cases(("fork", "spawn"), ("fork",)))
@pytest.mark.parametrize("how", ["init", "late", "borrowed"])
def test_ranks_that_a_process_starts_are_those_of_the_group(how, method):
    python = warm() if method == "fork" else sys.executable
    output = run(python, SCRIPTS / "spawned.py", method, how)
    assert f"{how}: rank 0 of 2 is right" in output and f"{how}: rank 1 of 2 is right" in output


def test_torchrun_below_srun_with_one_task_per_node_speaks_for_its_ranks():
    step = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4",
            "SLURM_PROCID": "3", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "9"}  # fmt: skip
    assert "2 ranks have averaged over ucx" in run(warm(), *TORCHRUN, *HELLO, **step)


def test_ranks_of_srun_need_no_variables_of_torch():
    job = str(os.getpid())
    step = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2",
            "SLURM_JOB_ID": job, "SLURM_STEP_NODELIST": "localhost"}  # fmt: skip
    ranks = [start(warm(), *HELLO, **step, SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank))
             for rank in range(2)]  # fmt: skip
    ended = [finish(rank) for rank in ranks]
    assert [code for code, _ in ended] == [0, 0], ended
    assert "2 ranks have averaged over ucx" in ended[0][1]


def test_ranks_of_plain_mpirun_need_no_variables_of_torch():
    assert "2 ranks have averaged over mpi" in run(*MPIRUN, "-np", "2", warm(), *HELLO)


def test_the_group_counts_where_the_launcher_says_otherwise_and_rank_0_says_so_once():
    output = run(sys.executable, SCRIPTS / "spawned.py", "spawn", "init", HOROVOD_RANK="2", HOROVOD_SIZE="3")
    assert "init: rank 1 of 2 is right" in output
    said = [line for line in output.splitlines() if "the ranks of the group are used" in line]
    assert len(said) == 1 and "HOROVOD_SIZE=3" in said[0], output


def test_ranks_that_meet_over_torchs_store_wait_as_long_as_the_file_says_and_name_who_is_missing():
    code, output = finish(start(warm(), *TORCHRUN, SCRIPTS / "late_rank.py", "100"))
    assert code != 0, output
    warned = [line for line in output.splitlines() if line.startswith("penstock warning: rank 0 has waited")]
    assert warned and "for rank 1 of torchrun to come" in warned[0], output
    assert re.search(r"waited \d+ s for rank 1 of torchrun to come to hvd.init\(\)", output), output
    assert "raise runtime.rendezvous_timeout_s" in output, output


def test_texts_that_ranks_of_an_earlier_life_left_in_the_store_are_not_taken():
    store, size = dist.HashStore(), 3

    def live(life, ranks, pauses):
        gathered = {}

        def come(one, pause):
            time.sleep(pause)
            text = f"{life} {one.rank}"
            try:
                gathered[one.rank] = [one.gather(text, 10.0 if len(ranks) == size else 0.2, 0.0)]
            except TimeoutError as error:
                gathered[one.rank] = str(error)

        ones = [identity.Identity(store, rank, size, "a store") for rank in ranks]
        for one in ones:
            one._key = "penstock/0"  # as in new processes
        threads = [threading.Thread(target=come, args=each) for each in zip(ones, pauses)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return gathered

    for life, pauses in enumerate([(0, 0, 0), (0.3, 0, 0.1), (0, 0.3, 0.1), (0.1, 0.2, 0)]):
        expected = [[f"{life} {rank}" for rank in range(size)]]
        assert live(life, range(size), pauses) == {rank: expected for rank in range(size)}
        assert b"".join(store.get(f"penstock/0/0/{name}") for name in (0, 1, 2, "all")) == b""
        # A life that ended while its ranks met.
        found = live(life + 10, (0, 2), (0, 0))
        assert "for rank 1 of a store to come" in found[0] and "for rank 0 of a store" in found[2]


def test_mpis_own_world_that_is_not_the_groups_is_refused_with_both_numbers(tmp_path):
    script = tmp_path / "alone.py"
    script.write_text(
        "import torch.distributed as dist, penstock.torch as hvd\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "hvd.init(config_text='[scheme]\\ncollective = \"mpi\"\\n')\n"
    )
    code, output = finish(start(*MPIRUN, "-np", "2", warm(), script))
    assert code != 0 and "of 2, but rank 0 of 1 in torch's default group" in output, output


def test_without_the_transport_of_its_launcher_the_group_is_borrowed_and_the_remedy_named(tmp_path):
    from penstock._library import find_library

    library = find_library()
    (tmp_path / "lib/penstock/plugins").mkdir(parents=True)
    for file in library.parent.glob("*.so*"):
        shutil.copy(file, tmp_path / "lib")
    for file in (library.parent / "penstock/plugins").glob("*.so"):
        if "ucx" not in file.name and "mpi" not in file.name:
            shutil.copy(file, tmp_path / "lib/penstock/plugins")
    variables = {"PENSTOCK_LIBRARY": str(tmp_path / "lib" / library.name)}
    output = run(warm(), *TORCHRUN, SCRIPTS / "says.py", "conf/ef-sign.toml", **variables)
    said = [line for line in output.splitlines() if "messages go over torch's default group" in line]
    assert len(said) == 1 and "collective-ucx.so was not built" in said[0], output
    assert "transport borrowed" in output


# ---- lines of rank 0 ----


def test_at_the_first_step_one_line_tells_scheme_transport_and_bytes():
    output = run(warm(), *TORCHRUN, SCRIPTS / "says.py", "conf/topk-residual.toml")
    (line,) = [line for line in output.splitlines() if line.startswith("penstock: ")]
    assert "topk + residual over ucx, 2 ranks; a step sends " in line and "dense 2.08 kB (1/" in line
    quiet = run(warm(), *TORCHRUN, SCRIPTS / "says.py", "conf/topk-residual.toml",
                PENSTOCK_LOG_LEVEL="error")  # fmt: skip
    assert "penstock: " not in quiet and "log level error" in quiet


def test_a_scheme_that_compresses_no_gradient_says_why_in_its_line(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text('[scheme]\ncompressor = "topk"\n[[rule]]\nmatch = { elements = { max = 9999 } }\ncompressor = "none"\n')
    whys = {"conf/power-sgd.toml": "powersgd sends all 2 as they are",
            str(file): "rule 1 { elements = up to 9999 } takes all 2 from topk"}  # fmt: skip
    for scheme, why in whys.items():
        output = run(warm(), *TORCHRUN, SCRIPTS / "says.py", scheme)
        (line,) = [line for line in output.splitlines() if "a step sends" in line]
        assert line.endswith(f", as dense does. No gradient is compressed: {why}"), output


def test_a_state_that_no_backward_used_and_a_run_of_nothing_say_so_at_their_end():
    output = run(warm(), *TORCHRUN, SCRIPTS / "says.py", "conf/ef-sign.toml", "forgotten")
    said = sorted(line for line in output.splitlines() if line.startswith("penstock: warning"))
    state, nothing = said  # each once, of rank 0
    assert "no backward has used PenstockState(conf/ef-sign.toml)" in state
    assert "this run of 2 ranks averaged nothing" in nothing and "register_comm_hook" in nothing


def test_a_table_of_the_run_in_a_states_file_is_refused_by_line_or_has_its_effect(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text('[scheme]\ncompressor = "topk"\nmemory = "residual"\n[runtime]\nlog_level = "info"\n')
    code, output = finish(start(warm(), *TORCHRUN, SCRIPTS / "says.py", file))
    assert code != 0 and f"{file}:4: [runtime] belongs to the run" in output, output
    assert f'hvd.init(config="{file}")' in output
    assert "log level info" in run(warm(), *TORCHRUN, SCRIPTS / "says.py", file, "late")


def test_a_state_of_what_is_no_scheme_says_what_was_expected():
    import penstock.torch as hvd

    with pytest.raises(ValueError, match=r"the scheme is None of type NoneType, expected the path"):
        hvd.PenstockState(None)


# ---- a script that ends in an exception ----


@pytest.mark.parametrize("level", ["warning", "debug"])
def test_an_exception_of_one_rank_is_printed_whole_once_and_torchrun_blames_that_rank(
    level, tmp_path
):
    code, output = finish(start(warm(), *TORCHRUN, SCRIPTS / "broken_on_rank_1.py",
                                tmp_path / "said", PENSTOCK_LOG_LEVEL=level))  # fmt: skip
    assert code != 0 and "KeyError: 'no such column'" in output, output
    cause = output[output.index("Root Cause") :]
    assert "rank      : 1" in cause, output
    # torchrun prints other lines beside these.
    by_scripts = output[: output.index("torch/distributed/elastic")].count("Traceback (most recent")
    assert by_scripts == (2 if level == "debug" else 1), output
    # An operation that was submitted before the rank ended is named.
    said = r"HorovodInternalError: (operation '[\w.]+': )?rank 1 ended with KeyError: 'no such column'"
    assert re.search(said, output), output
