"""Several ranks under mpirun. Each test runs one script of tests/ranks, and the names of its
functions describe the checks."""

import re

import pytest
from launch import ALONE, HERE, OVER_UCX, WORLDS, run_python, run_ranks, succeed
from long_runs import cases

PLAIN_MPIRUN = ("mpirun", "--oversubscribe", "--allow-run-as-root", "-np")

CONTRACT = (
    "collectives", "alltoall", "groups", "sparse_allreduce", "waiting", "process_sets",
    "sync_batch_norm", "objects", "errors",
)  # fmt: skip


@pytest.mark.parametrize("ranks", WORLDS)
def test_horovods_operations_keep_their_contract(ranks):
    succeed("contract.py", ranks, *CONTRACT)


@pytest.mark.parametrize("ranks", WORLDS)
def test_distributed_optimizer_keeps_horovods_contract(ranks):
    succeed("optimizer_contract.py", ranks)


def test_saved_and_restored_a_run_goes_on_bit_for_bit(tmp_path):
    succeed("state.py", 2, str(tmp_path))
    succeed("state.py", 2, str(tmp_path), "resume")


def test_deferred_updates_equal_updates_at_once():
    succeed("deferred.py", 2)


@pytest.mark.parametrize("ranks", cases((1, 2, 3), (3,)))
def test_means_that_are_applied_one_step_late_equal_delayed_training(ranks):
    succeed("contract.py", ranks, "late", "late_state")


@pytest.mark.parametrize("ranks", WORLDS)
def test_ranks_that_run_out_of_data_join(ranks):
    succeed("join.py", ranks)


def test_ctrl_c_on_a_rank_that_waits_in_join_ends_all_with_its_name():
    done = run_ranks("join_interrupted.py", 3, starter=ALONE)
    assert done.returncode != 124 and "rank 0: -2" in done.stdout, done.stdout
    for survivor in (1, 2):
        said = [line for line in done.stdout.splitlines() if f"survivor {survivor}:" in line]
        assert len(said) == 1 and "rank 0 ended with KeyboardInterrupt" in said[0], done.stdout


@pytest.mark.parametrize("ranks", cases((1, 2, 3, 4), (4,)))
def test_a_mean_of_halves_is_right_wherever_it_fits(ranks):
    succeed("means.py", ranks)


@pytest.mark.parametrize("ranks", cases((3, 4), (4,)))
def test_what_two_ranks_saved_more_load(ranks):
    succeed("shards.py", ranks)


@pytest.mark.parametrize("ranks", cases((1, 2, 3), (3,)))
def test_changes_after_wrapping_are_exchanged_or_refused(ranks):
    succeed("later_changes.py", ranks)


def test_a_timeline_that_every_rank_starts_is_one_file_of_rank_0(tmp_path):
    succeed("timeline.py", 2, str(tmp_path))


@pytest.mark.parametrize("ranks", cases((3, 4), (3,)))
def test_a_deterministic_run_gives_the_same_bits_again(ranks):
    succeed("repeat.py", ranks)


def test_two_deterministic_launches_give_the_same_bits(tmp_path):
    prints = tmp_path / "fingerprints.json"
    succeed("repeat.py", 2, str(prints))
    assert prints.exists()
    succeed("repeat.py", 2, str(prints))


@pytest.mark.parametrize("ranks", cases((2, 4), (4,)))
def test_planners_train_like_wait_free_back_propagation(ranks):
    succeed("planners.py", ranks)


@pytest.mark.parametrize(
    "asked, warnings, taken", [("", 1, 2), ("warning", 1, 2), ("error", 0, 0), ("off", 0, 2)]
)
def test_parameters_that_differ_are_what_the_run_says(monkeypatch, asked, warnings, taken):
    monkeypatch.setenv("PENSTOCK_CHECK_PARAMETERS", asked)
    done = run_ranks("parameters.py", 2)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("parameter weight differs between ranks") == warnings, done.stdout
    assert done.stdout.count("(1 of 2 parameters differ: weight)") == warnings, done.stdout
    assert done.stdout.count("its first step was taken") == taken, done.stdout
    assert done.stdout.count("its first step was refused") == 2 - taken, done.stdout


def test_a_check_of_parameters_that_is_none_is_refused(monkeypatch):
    monkeypatch.setenv("PENSTOCK_CHECK_PARAMETERS", "yes")
    done = run_ranks("parameters.py", 1)
    assert done.returncode != 0
    assert 'PENSTOCK_CHECK_PARAMETERS is "yes", expected "warning", "error" or "off"' in done.stdout


@pytest.mark.parametrize("ranks", cases((2, 3, 4), (2,)))
def test_parameters_are_compared_again_at_every_door(ranks):
    succeed("parameters_again.py", ranks)


@pytest.mark.parametrize("kind", ("DistributedOptimizer", "LocalSteps"))
def test_where_rank_0_is_outside_the_process_set_the_run_has_averaged_something(kind):
    said = run_ranks("outside.py", 2, kind).stdout
    assert said.count("trained 0") == 1 and said.count("trained 2") == 1, said
    assert "averaged nothing" not in said, said


def test_where_all_ranks_share_a_host_nothing_listens_for_others():
    # As users start it, without options for Open MPI's network.
    for done in (
        run_ranks("listening.py", 2, starter=PLAIN_MPIRUN),
        run_ranks("listening.py", 2, over="ucx"),
        run_python("ranks/listening.py", folder=HERE),
    ):
        assert done.returncode == 0, done.stdout


def test_who_says_which_ways_open_mpi_takes_is_asked(monkeypatch):
    monkeypatch.setenv("OMPI_MCA_btl", "self,vader,tcp")
    done = run_ranks("listening.py", 2, starter=PLAIN_MPIRUN)
    assert done.returncode != 0 and "AssertionError: ['00000000:" in done.stdout, done.stdout


@pytest.mark.parametrize("how", ("shutdown", "exit"))
def test_rank_0_that_ended_well_stays_until_the_others_have_left_and_names_them(how):
    said = run_ranks("ends_first.py", 3, how).stdout
    assert "rank 1 saved" in said and "rank 2 saved" in said, said
    warned = [line for line in said.splitlines() if "rank 0 has ended" in line]
    assert warned and "stays for ranks 1 and 2" in warned[0] and "runtime.busy_limit_s" in warned[0], said
    if how == "shutdown":
        assert int(re.search(r"rank 0 stayed for (\d+) s", said)[1]) >= 7, said


def test_ctrl_c_at_a_rank_0_that_stays_ends_the_run_and_the_others_are_told():
    said = run_ranks("ends_first.py", 3, "interrupted", starter=ALONE).stdout
    assert re.search(r"rank 0 was interrupted, after [12] s", said), said
    for rank in (1, 2):
        assert re.search(rf"rank {rank} got: .*rank 0 has left the run", said), said


@pytest.mark.skipif(OVER_UCX, reason="torchrun ends the survivors before they have spoken")
def test_a_rank_that_dies_leaves_nobody_waiting():
    # mpirun must not end the survivors before they have printed their errors.
    survive = ("--mca", "orte_abort_on_non_zero_status", "0")
    done = run_ranks("dies.py", 3, options=survive)
    assert done.returncode != 124, done.stdout
    for survivor in (0, 1):
        said = [line for line in done.stdout.splitlines() if f"survivor {survivor}:" in line]
        assert len(said) == 1 and "rank 2" in said[0], done.stdout
        assert "the reason it died of" in said[0], done.stdout
