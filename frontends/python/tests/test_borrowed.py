"""Runs over a borrowed process group of torch, under torchrun. With TEST_FRONTEND_OVER=borrowed
the other tests of the frontend run over a borrowed group too."""


import pytest
from launch import ALONE, WORLDS, run_ranks, succeed
from long_runs import IS_LONG


@pytest.mark.parametrize("ranks", WORLDS)
def test_a_borrowed_group_carries_a_run_and_stays_usable(ranks):
    succeed("borrowed.py", ranks, over="ucx")


@pytest.mark.skipif(not IS_LONG, reason="tools/nightly")
def test_horovods_operations_keep_their_contract_over_a_borrowed_group():
    succeed("contract.py", 3, "collectives", "alltoall", "process_sets", over="borrowed")


def test_the_hook_keeps_ddps_contract_over_a_borrowed_group():
    succeed("ddp.py", 2, over="borrowed")


def test_a_rank_that_dies_is_named_by_the_others():
    done = run_ranks("borrowed.py", 3, "dies", starter=(*ALONE, "--last-dies"))
    assert done.returncode == 0, done.stdout
    for survivor in (0, 1):
        said = [line for line in done.stdout.splitlines() if f"survivor {survivor}:" in line]
        assert len(said) == 1 and "rank 2" in said[0], done.stdout
