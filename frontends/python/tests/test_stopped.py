"""Ranks that the operating system stops at any moment, for up to 1.2 seconds: everything must end as
it does on an idle machine. `tools/nightly` makes all runs with several seeds."""


import pytest
from launch import succeed
from long_runs import IS_LONG

RUNS = (
    ("join.py", 3), ("contract.py", 3, "late", "late_state"), ("optimizer_contract.py", 3),
    ("contract.py", 3, "collectives", "alltoall", "process_sets"), ("local_steps.py", 3),
    ("local_steps_sets.py", 3), ("deferred.py", 2), ("later_changes.py", 3), ("shards.py", 3),
    ("ddp.py", 3), ("ddp_recipes.py", 3), ("fsdp.py", 2), ("means.py", 3),
)  # fmt: skip


@pytest.mark.parametrize("seed", range(1, 4 if IS_LONG else 2))
@pytest.mark.parametrize("run", RUNS if IS_LONG else RUNS[:1], ids=lambda run: " ".join(map(str, run)))
def test_ranks_that_are_stopped_now_and_then_end_as_others_do(run, seed, monkeypatch):
    monkeypatch.setenv("PENSTOCK_TEST_STOPS", str(seed))
    succeed(*run)
