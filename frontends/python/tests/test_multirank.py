"""Several ranks under mpirun: each test runs one script of tests/ranks, whose checks are functions
with names that say what they check."""

import pytest
from launch import run_ranks, succeed


@pytest.mark.parametrize("ranks", [2, 3])
def test_collectives_give_the_expected_values(ranks):
    succeed("collectives.py", ranks)


def test_ranks_that_disagree_get_an_error_on_every_rank():
    succeed("errors.py", 2)


def test_parameters_state_and_objects_reach_every_rank():
    succeed("objects.py", 3)


@pytest.mark.parametrize("ranks", [2, 4])
def test_distributed_optimizer_equals_one_process_with_the_whole_batch(ranks):
    succeed("optimizer.py", ranks)


def test_saved_and_restored_a_run_goes_on_bit_for_bit(tmp_path):
    succeed("state.py", 2, str(tmp_path))
    succeed("state.py", 2, str(tmp_path), "resume")


def test_deferred_updates_equal_updates_at_once():
    succeed("deferred.py", 2)


def test_a_rank_that_dies_leaves_nobody_waiting():
    done = run_ranks("dies.py", 3, timeout=40)
    assert done.returncode not in (0, 124), done.stdout
    assert "the reason it died of" in done.stdout, done.stdout
