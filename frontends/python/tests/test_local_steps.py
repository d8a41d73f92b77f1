"""Ranks that train apart: the order of exchanges, the layers, and runs on several ranks."""

import re

import pytest
import torch
from launch import ALONE, run_ranks, succeed
from long_runs import cases

from penstock.common.rotation import Rotation
from penstock.torch.apart.fragment import values_of
from penstock.torch.apart.layers import fragments_of, layer_of
from penstock.torch.apart.outer import OuterStep, are_finite
from penstock.torch.apart.pace import Pace


@pytest.mark.parametrize("every, fragments, delay", [(1, 1, 0), (30, 1, 29), (12, 3, 3), (7, 3, 1)])
def test_each_fragment_starts_once_in_a_round_and_lands_before_the_next_starts(
    every, fragments, delay
):
    rotation = Rotation(every, fragments, delay)
    under_way, starts = [], []
    for step in range(1, 5 * every + 1):
        landing, starting = rotation.landing(step), rotation.starting(step)
        if landing is not None and delay:
            assert under_way == [(landing, step - delay)]
            under_way.clear()
        if starting is not None:
            assert under_way == []
            starts.append(starting)
            under_way += [(starting, step)] if delay else []
            assert delay or landing == starting
    assert starts == list(range(fragments)) * 5


def test_nothing_lands_before_it_has_started():
    assert [Rotation(2, 1, 1).landing(step) for step in range(1, 5)] == [None, None, 0, None]


@pytest.mark.parametrize(
    "name, layer",
    [
        ("blocks.3.mlp.weight", "blocks.3"),
        ("module.layers.11.attn.0.bias", "module.layers.11"),
        ("0.weight", "0"),
        ("embed.weight", "embed"),
        ("scale", "scale"),
    ],
)
def test_a_layer_ends_at_the_first_number_of_the_name(name, layer):
    assert layer_of(name) == layer


def test_layers_go_to_fragments_in_turn_with_all_their_parameters():
    names = ["embed.w", "b.0.w", "b.0.v", "b.1.w", "b.2.w", "b.1.v", "head.w"]
    named = [(name, torch.zeros(1)) for name in names]
    parts = [[name for name, _ in part] for part in fragments_of(named, 2)]
    assert parts == [["embed.w", "b.1.w", "b.1.v", "head.w"], ["b.0.w", "b.0.v", "b.2.w"]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(0,), (), (3, 5), (2048,), (257, 400)])
@pytest.mark.parametrize(
    "outer", [OuterStep(), OuterStep(nesterov=False), OuterStep(0.5, 0.0), OuterStep(1.0, 0.0)]
)
@pytest.mark.parametrize("mix", [0.0, 0.3])
def test_an_outer_step_has_the_bits_of_its_equations(shape, outer, mix, dtype):
    anchor, drift, momentum, values = (torch.randn(shape, dtype=dtype) for _ in range(4))
    way, expected_momentum = drift, momentum * outer.momentum + drift
    if outer.has_momentum:
        way = expected_momentum
        if outer.nesterov:
            way = drift + expected_momentum * outer.momentum
    expected = anchor - way * outer.lr
    expected_values = values * mix + expected * (1 - mix)
    own_momentum = momentum if outer.has_momentum else None
    gaps = torch.stack([values, values], -1)[..., 0]  # a parameter that is not contiguous
    other = anchor.clone(), drift.clone(), None if own_momentum is None else own_momentum.clone()
    outer.take(anchor, drift, own_momentum, values, mix)
    outer.take(*other, gaps, mix)
    assert torch.equal(anchor, expected) and torch.equal(values, expected_values)
    assert own_momentum is None or torch.equal(momentum, expected_momentum)
    assert torch.equal(other[0], expected) and torch.equal(gaps, expected_values)


@pytest.mark.parametrize("shape", [(), (3, 5)])
def test_autograd_notices_that_an_outer_step_changed_a_parameter(shape):
    parameter = torch.nn.Parameter(torch.ones(shape))
    loss = (parameter * parameter).sum()  # saves the parameter for backward
    OuterStep(1.0, 0.0).take(
        torch.ones(shape), torch.ones(shape), None, values_of(parameter), 0.0
    )
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_parameter_of_16_bits_is_rounded_once_from_its_anchor():
    anchor, drift = torch.randn(1000), torch.randn(1000)
    values = torch.randn(1000).to(torch.bfloat16)
    expected = anchor - drift
    mixed = (values.float() * 0.25 + expected * 0.75).to(torch.bfloat16)
    OuterStep(1.0, 0.0).take(anchor, drift, None, values, 0.25)
    assert torch.equal(anchor, expected) and torch.equal(values, mixed)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", [0, 40_000, 99_999])
def test_one_value_that_is_not_finite_is_found_in_any_part(value, place):
    values = torch.zeros(100_000)
    other = values.clone()
    assert are_finite([values, values[:0]]) == [True, True]
    values[place] = value
    assert are_finite([other, values]) == [True, False]


def test_finite_values_whose_sum_is_infinite_are_finite():
    assert are_finite([torch.full((3,), torch.finfo(torch.float32).max)]) == [True]


@pytest.mark.parametrize(
    ("rotation", "waits", "hides"),
    [
        (Rotation(30), [9.0, 0.9, 0.5], 4),  # the first exchange plans
        (Rotation(30), [9.0, 0.01], 0),
        (Rotation(30, 3), [9.0, 9.0, 9.0, 0.9], 4),
        (Rotation(30, delay=3), [9.0, 0.0, 0.01], 3),
        (Rotation(30, delay=3), [9.0, 0.0, 0.5], 5),
    ],
)
def test_the_report_tells_the_delay_that_hides_an_exchange(rotation, waits, hides, monkeypatch):
    now = 0.0
    monkeypatch.setattr("penstock.torch.apart.pace.time.perf_counter", lambda: now)
    pace = Pace(rotation)
    assert pace.report() == {}
    for wait in waits:
        pace.step_begins()
        now += 0.4
        pace.step_ends()
        pace.waited(wait)
        now += wait  # which is no part of a step
    told = pace.report()
    assert told["delay_that_hides"] == hides and told["step_s"] == pytest.approx(0.4)
    assert told["wait_s"] == max(waits[rotation.fragments :])


@pytest.mark.parametrize("ranks", cases((1, 2, 3, 4, 8), (1, 3)))
def test_ranks_that_train_apart_do_what_the_papers_say(ranks):
    succeed("local_steps.py", ranks)


@pytest.mark.parametrize("ranks", cases((2, 3, 4), (2,)))
def test_what_ranks_must_share_is_compared_and_a_difference_is_an_error_on_every_rank(ranks):
    succeed("local_steps_agree.py", ranks)


def test_a_rank_that_ends_between_two_exchanges_is_noticed_at_the_next_step():
    said = run_ranks("local_steps_dies.py", 3, starter=ALONE).stdout
    for rank in (0, 1):
        stopped = re.search(rf"rank {rank} stopped after step (\d+): .*the disk is full", said)
        assert stopped and int(stopped[1]) < 300, said


def test_without_a_second_generation_a_scheme_that_keeps_values_is_refused(tmp_path):
    (tmp_path / "forget.toml").write_text("[runtime]\nforget = false\n")
    succeed("local_steps_forget.py", 2, str(tmp_path))


@pytest.mark.parametrize("ranks", (2, 4))
def test_ranks_of_a_process_set_train_apart_among_themselves(ranks):
    succeed("local_steps_sets.py", ranks)


@pytest.mark.parametrize("ranks", (3, 4))
def test_saved_states_load_on_another_number_of_ranks(ranks):
    succeed("local_steps_shards.py", ranks)


def test_saved_inside_a_round_a_run_resumes_in_other_processes(tmp_path):
    succeed("local_steps_state.py", 2, str(tmp_path))
    succeed("local_steps_state.py", 2, str(tmp_path), "resume")


def test_the_first_round_says_what_it_sends_and_a_broken_rank_says_so_once():
    said = run_ranks("local_steps_says.py", 2).stdout
    assert said.count("; a round of 4 steps sends") == 1, said
    assert "averaged nothing" not in said, said
    assert said.count("penstock warning: rank 1: parameter weight (and 1 more) is not finite") == 1
    assert said.index("before the first round") < said.index("a round of 4 steps"), said


@pytest.mark.parametrize("ranks", cases((1, 2, 3), (2,)))
def test_what_scripts_do_around_rounds_and_late_means_leaves_no_trace(ranks):
    for first in range(1, 1 + cases(400, 12), 50):
        succeed("scripts_drawn.py", ranks, str(1000 * ranks + first), str(cases(50, 12)))
