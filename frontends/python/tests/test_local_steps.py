"""Ranks that train apart: the order of exchanges, the layers, and runs on several ranks."""

import pytest
import torch
from launch import run_ranks, succeed, worlds

from penstock.common.rotation import Rotation
from penstock.torch.apart.layers import fragments_of, layer_of
from penstock.torch.apart.outer import OuterStep, in_parts, is_finite


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


@pytest.mark.parametrize("shape", [(0,), (), (3, 5), (32768,), (257, 400)])
@pytest.mark.parametrize("nesterov", [True, False])
def test_an_outer_step_in_parts_has_the_bits_of_the_whole_step(shape, nesterov):
    anchor, drift, momentum = (torch.randn(shape) for _ in range(3))
    expected_momentum = momentum * 0.9 + drift
    way = drift + expected_momentum * 0.9 if nesterov else expected_momentum
    expected = anchor - way * 0.7
    for part in in_parts(anchor, drift, momentum):
        OuterStep(nesterov=nesterov).move(*part)
    assert torch.equal(anchor, expected) and torch.equal(momentum, expected_momentum)


def test_a_tensor_with_gaps_is_not_cut_into_parts():
    gaps = torch.randn(300, 400).t()
    assert [len(parts) for parts in in_parts(gaps, None)] == [2]
    assert next(in_parts(gaps))[0] is gaps


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", [0, 40_000, 99_999])
def test_one_value_that_is_not_finite_is_found_in_any_part(value, place):
    values = torch.zeros(100_000)
    assert bool(is_finite(values)) and bool(is_finite(values[:0]))
    values[place] = value
    assert not bool(is_finite(values))


def test_finite_values_whose_sum_is_infinite_are_finite():
    assert bool(is_finite(torch.full((3,), torch.finfo(torch.float32).max)))


@pytest.mark.parametrize("ranks", worlds((1, 2, 3, 4, 8), (1, 3)))
def test_ranks_that_train_apart_do_what_the_papers_say(ranks):
    succeed("local_steps.py", ranks)


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
