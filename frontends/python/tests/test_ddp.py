"""ddp_hook on several ranks under mpirun. Each test runs one script of tests/ranks, and the
names of its functions describe the checks."""

import pytest
from launch import OVER_UCX, WORLDS, run_ranks, succeed
from long_runs import cases


@pytest.mark.parametrize("ranks", WORLDS)
def test_the_hook_keeps_ddps_contract(ranks):
    succeed("ddp.py", ranks)


@pytest.mark.parametrize("ranks", WORLDS)
def test_recipes_of_ddp_users_work_through_the_hook(ranks):
    succeed("ddp_recipes.py", ranks)


@pytest.mark.parametrize("ranks", cases((1, 3), (3,)))
def test_a_checkpoint_goes_on_bit_for_bit_in_another_process(ranks, tmp_path):
    succeed("ddp_resume.py", ranks, str(tmp_path), "save")
    succeed("ddp_resume.py", ranks, str(tmp_path), "resume")


@pytest.mark.parametrize(
    "before, after", cases(((1, 2), (2, 1), (2, 2), (2, 3), (4, 1)), ((2, 3),))
)
def test_another_number_of_ranks_goes_on_under_the_hook(before, after, tmp_path):
    succeed("ddp_shards.py", before, str(tmp_path), "save")
    succeed("ddp_shards.py", after, str(tmp_path), "load")


@pytest.mark.skipif(OVER_UCX, reason="torchrun ends the survivors before they have spoken")
@pytest.mark.parametrize("how", ("dies", "leaves"))
def test_a_rank_that_is_gone_ends_the_others_backward_with_its_name(how):
    # mpirun must not end the survivors before they have printed their errors.
    survive = ("--mca", "orte_abort_on_non_zero_status", "0")
    done = run_ranks("ddp_gone.py", 3, how, options=survive)
    assert done.returncode != 124, done.stdout
    for survivor in (0, 1):
        said = [line for line in done.stdout.splitlines() if f"survivor {survivor}:" in line]
        assert len(said) == 1 and "rank 2" in said[0], done.stdout
