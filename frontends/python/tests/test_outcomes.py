"""The outcomes of steps, on several ranks under mpirun: results are used, or thrown away without
a trace."""


import pytest
from launch import succeed
from long_runs import IS_LONG, cases

LOOPS = 720 if IS_LONG else 15


@pytest.mark.parametrize("ranks", cases((1, 2, 3), (3,)))
@pytest.mark.parametrize("checks", ["outcomes.py", "thrown_away.py", "taken_out.py"])
def test_what_is_used_counts_and_what_is_thrown_away_leaves_no_trace(checks, ranks):
    succeed(checks, ranks)


@pytest.mark.parametrize("ranks", cases((1, 2, 3), (1, 2)))
def test_loops_as_users_write_them_leave_no_trace_of_what_they_throw_away(ranks):
    for first in range(0, LOOPS, 60):
        succeed("outcomes_drawn.py", ranks, str(1000 * ranks + first), str(min(60, LOOPS)))


@pytest.mark.parametrize("ranks", cases((1, 2, 3), (2,)))
def test_a_loss_scale_that_changes_is_told_to_every_frontend(ranks):
    succeed("loss_scale.py", ranks)


@pytest.mark.parametrize("limit", [0, 4])
def test_what_stops_a_guard_that_never_lets_go(limit):
    succeed("guards.py", 2, str(limit))
