"""The oracle against hand-made cases and conservation laws: nothing here needs the runtime."""

from __future__ import annotations

import math

import pytest
import torch

from .cases import ITEMS, RANKS, expect_nothing_lost, gradients
from .dense import DenseMean, MajorityVote, RoundedMean
from .dgc import DenseWithMomentum, Dgc, DgcOptions, geometry, select
from .low_rank import AcpSgd, PowerSgd, orthogonalise
from .method import Item, kept_count, largest
from .ok_topk import OkTopK, equal_count_splits
from .random import normals, splitmix64
from .schemes import buckets, make_scheme
from .top_k import TopK

def largest_gap(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def test_splitmix64_gives_the_published_first_values() -> None:
    # The first outputs of the reference generator seeded with 0: splitmix64 of 0 and of one golden-ratio increment.
    assert splitmix64(0) == 0xE220A8397B1DCDAF
    assert splitmix64(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4


def test_normals_depend_on_every_argument_and_look_normal() -> None:
    sample = normals(1, 0, 1, 400, 50)
    assert abs(float(sample.mean())) < 0.03 and abs(float(sample.std()) - 1.0) < 0.03  # 4 sigma of 20000 draws
    assert torch.equal(sample[:10], normals(1, 0, 1, 10, 50)), "element i does not depend on the number of rows"
    for other in (normals(2, 0, 1, 400, 50), normals(1, 1, 1, 400, 50), normals(1, 0, 2, 400, 50)):
        assert not torch.equal(sample, other)


def test_largest_keeps_the_lower_position_between_equal_magnitudes() -> None:
    assert largest(torch.tensor([1.0, -2.0, 2.0, -2.0, 0.5]), 2).tolist() == [1, 2]
    assert largest(torch.zeros(5), 3).tolist() == [0, 1, 2]
    assert largest(torch.tensor([3.0]), 4).tolist() == [0]


def test_kept_count_is_the_clamped_ceiling_without_binary_noise() -> None:
    assert [kept_count(n, 0.01) for n in (1, 99, 100, 101, 700)] == [1, 1, 1, 2, 7]
    assert kept_count(36_864, 0.001) == 37
    assert kept_count(5, 1.0) == 5


def test_dgc_geometry_matches_the_worked_values() -> None:
    for numel, density, expected in (
        (36_864, 0.001, (17, 2168, 3, 37)),
        (589_824, 0.001, (97, 6080, 7, 590)),
        (2_359_296, 0.001, (97, 24_322, 25, 2360)),
        (9408, 0.01, (41, 229, 3, 95)),
        (36_864, 0.01, (97, 380, 4, 369)),
    ):
        shape = geometry(numel, density)
        assert (shape.stride, shape.samples, shape.sampled_kept, shape.kept) == expected


def test_dgc_selects_close_to_k_and_only_the_largest() -> None:
    values = torch.randn(50_000, generator=torch.Generator().manual_seed(5))
    shape = geometry(values.numel(), 0.01)
    for start in range(0, shape.stride, 16):
        chosen = select(values, shape, start)
        assert 0.8 * shape.kept <= chosen.numel() <= shape.kept
        assert torch.equal(chosen, largest(values, chosen.numel()))


def test_orthogonalised_columns_are_orthonormal_and_follow_gram_schmidt() -> None:
    factor = torch.randn(30, 4, generator=torch.Generator().manual_seed(2))
    q = orthogonalise(factor)
    assert torch.allclose(q.T @ q, torch.eye(4), atol=1e-6)  # float32 products of length 30
    assert torch.allclose(q[:, 0], factor[:, 0] / factor[:, 0].norm(), atol=1e-6)
    dependent = torch.stack([factor[:, 0], factor[:, 0] * 3.0, factor[:, 1]], dim=1)
    assert float(orthogonalise(dependent)[:, 1].abs().max()) == 0.0
    assert torch.allclose(orthogonalise(dependent)[:, 2], q[:, 1], atol=1e-6), "a zero column takes nothing from others"
    assert not bool(orthogonalise(torch.zeros(5, 2)).any())


KEEPING = {
    "top-k of each item": lambda: TopK(ITEMS, RANKS, 0.05),
    "top-k of the bucket": lambda: TopK(ITEMS, RANKS, 0.05, "bucket"),
    "ok-topk": lambda: OkTopK(ITEMS, RANKS, 0.05, threshold_period=8, boundary_period=16),
    "power-sgd": lambda: PowerSgd(ITEMS, RANKS, 2),
    "acp-sgd": lambda: AcpSgd(ITEMS, RANKS, 2),
}


@pytest.mark.parametrize("name", KEEPING)
def test_mass_is_conserved_over_a_hundred_steps(name: str) -> None:
    expect_nothing_lost(KEEPING[name]())


@pytest.mark.parametrize("scope", ["item", "bucket"])
def test_sparse_methods_at_density_one_are_the_dense_mean(scope: str) -> None:
    dense = DenseMean(ITEMS, RANKS)
    for method in (TopK(ITEMS, RANKS, 1.0, scope), OkTopK(ITEMS, RANKS, 1.0, scope)):
        for step in range(3):
            assert largest_gap(method.step(step, gradients(step)), dense.step(step, gradients(step))) == 0.0


def test_dgc_at_density_one_is_momentum_sgd_or_with_masking_plain_sgd() -> None:
    options = {"density": 1.0, "momentum": 0.9}
    momentum = DenseWithMomentum(ITEMS, RANKS, DgcOptions(**options))
    unmasked = Dgc(ITEMS, RANKS, DgcOptions(masking=False, **options))
    masked = Dgc(ITEMS, RANKS, DgcOptions(masking=True, **options))
    nesterov = Dgc(ITEMS, RANKS, DgcOptions(masking=False, nesterov=True, **options))
    nesterov_dense = DenseWithMomentum(ITEMS, RANKS, DgcOptions(nesterov=True, **options))
    dense = DenseMean(ITEMS, RANKS)
    for step in range(10):
        grads = gradients(step)
        # Momentum of a mean against the mean of momenta: float32 rounding of ten sums of size one.
        assert largest_gap(unmasked.step(step, grads), momentum.step(step, grads)) < 5e-6
        assert largest_gap(nesterov.step(step, grads), nesterov_dense.step(step, grads)) < 5e-6
        assert largest_gap(masked.step(step, grads), dense.step(step, grads)) == 0.0


def test_dgc_velocity_keeps_what_momentum_made_of_the_gradients() -> None:
    """Without masking, sum sent + v = sum over steps of u, for any selection."""
    method = Dgc(ITEMS, 1, DgcOptions(density=0.05, masking=False))
    u = {i.name: torch.zeros(i.numel) for i in ITEMS}
    total = {i.name: torch.zeros(i.numel) for i in ITEMS}
    sent = {i.name: torch.zeros(i.numel) for i in ITEMS}
    for step in range(100):
        grads = gradients(step, ranks=1)
        for name, part in method.step(step, grads).items():
            sent[name] += part.reshape(-1)
            u[name] = 0.9 * u[name] + grads[0][name].reshape(-1)
            total[name] += u[name]
    for item in ITEMS:
        assert torch.allclose(sent[item.name] + method.kept(0)[item.name], total[item.name], atol=2e-3)


def test_weight_decay_beside_dgc_is_as_strong_as_with_momentum_when_divided_by_one_minus_it() -> None:
    """The authors' optimizer has the momentum and applies it to the decay. An optimizer beside the memory has no
    momentum."""
    item, m, decay = [Item("w", 0, (5, 40))], 0.9, 0.01

    def shrinkage(weight_decay: float, momentum: float) -> float:
        method = Dgc(item, 1, DgcOptions(density=0.1, momentum=m)) if momentum == 0.0 else DenseMean(item, 1)
        w = torch.nn.Parameter(torch.ones(5, 40))
        optimizer = torch.optim.SGD([w], lr=0.01, momentum=momentum, weight_decay=weight_decay)
        for step in range(300):
            w.grad = method.step(step, [{"w": torch.zeros(5, 40)}])["w"]
            optimizer.step()
        return -math.log(float(w.detach().mean()))

    theirs = shrinkage(decay, m)
    assert abs(shrinkage(decay / (1 - m), 0.0) / theirs - 1) < 0.05, "but for the ten steps in which momentum builds up"
    assert shrinkage(decay, 0.0) / theirs < 0.11


def test_dgc_clips_by_the_own_norm_or_by_the_norm_of_all_ranks() -> None:
    item = [Item("w", 0, (2, 1))]
    grads = [{"w": torch.tensor([[3.0], [4.0]])}, {"w": torch.zeros(2, 1)}]
    own = Dgc(item, 2, DgcOptions(density=1.0, clipping="norm")).step(0, grads)["w"]
    assert torch.allclose(own, torch.tensor([[0.3], [0.4]]), atol=1e-6)  # 1e-6 in the divisor
    everyone = Dgc(item, 2, DgcOptions(density=1.0, clipping="norm_global")).step(0, grads)["w"]
    scale = 1.0 / math.sqrt(12.5)
    assert torch.allclose(everyone, scale * torch.tensor([[1.5], [2.0]]), atol=1e-6)


def test_dgc_clips_values_to_a_bound_or_to_a_share_of_the_norm_of_all_ranks() -> None:
    item = [Item("w", 0, (2, 1))]
    grads = [{"w": torch.tensor([[3.0], [-4.0]])}, {"w": torch.zeros(2, 1)}]
    own = Dgc(item, 2, DgcOptions(density=1.0, clipping="value", clip=3.5)).step(0, grads)["w"]
    assert own.tolist() == [[1.5], [-1.75]]
    everyone = Dgc(item, 2, DgcOptions(density=1.0, clipping="value_global", clip=0.5)).step(0, grads)["w"]
    assert torch.allclose(everyone, torch.tensor([[0.25], [-0.25]]) * math.sqrt(12.5), atol=1e-6)
    whole = DenseWithMomentum(item, 2, DgcOptions(clipping="value_global", clip=0.5)).step(0, grads)["w"]
    assert torch.allclose(whole, torch.tensor([[0.5], [-0.5]]) * 2.5, atol=1e-6), "by the norm of the mean, 2.5"
    with pytest.raises(ValueError, match="clipping"):
        Dgc(item, 2, DgcOptions(clipping="norms")).step(0, grads)


def test_low_rank_at_full_rank_is_the_dense_mean() -> None:
    dense = DenseMean(ITEMS, RANKS)
    method = PowerSgd(ITEMS, RANKS, 1000, minimum_compression_rate=0.0)
    for step in range(5):
        grads = gradients(step)
        # Two float32 products of length up to 75 and a growing local error that cancels in the sum.
        assert largest_gap(method.step(step, grads), dense.step(step, grads)) < 2e-4


def test_power_sgd_recovers_a_mean_of_low_rank_and_leaves_bad_bargains_dense() -> None:
    item = Item("low", 0, (50, 40))
    left, right = normals(7, 0, 1, 50, 3), normals(7, 1, 1, 40, 3)
    update = PowerSgd([item], 1, 3).step(0, [{"low": left @ right.T}])["low"]
    assert torch.allclose(update, left @ right.T, atol=1e-4)
    assert PowerSgd([Item("small", 0, (8, 8)), Item("b", 1, (64,))], 1, 4).factored == []


def test_rounded_means_and_votes_follow_the_definitions() -> None:
    item = [Item("w", 0, (4,))]
    grads = [{"w": torch.tensor([1.0, 2.0, 0.0, -1.0])}, {"w": torch.tensor([1.0, -3.0, 0.0, 0.0])}]
    assert MajorityVote(item, 2).step(0, grads)["w"].tolist() == [1.0, 0.0, 0.0, -1.0]
    tiny = [{"w": torch.full((4,), 1.0 + 2.0**-12)}, {"w": torch.full((4,), 1.0)}]
    assert RoundedMean(item, 2, torch.float16).step(0, tiny)["w"].tolist() == [1.0] * 4
    assert RoundedMean(item, 2, torch.bfloat16).step(0, tiny)["w"].tolist() == [1.0] * 4
    large = [{"w": torch.full((4,), 40000.0)}] * 3
    assert RoundedMean(item, 3, torch.float16).step(0, large)["w"].tolist() == [40000.0] * 4, "the sum is no half, the mean is"
    assert RoundedMean(item, 3, torch.float16, rounds_sums=True).step(0, large)["w"].isinf().all()


def test_ok_topk_refuses_all_but_k_sums_on_threshold_steps() -> None:
    method = OkTopK(ITEMS, RANKS, 0.05, threshold_period=4)
    for step in range(9):
        kept = sum(int(torch.count_nonzero(u)) for u in method.step(step, gradients(step)).values())
        if step % 4 == 0:
            assert kept == method.capacity
    assert len(method.boundaries) == RANKS - 1 and method.boundaries == sorted(method.boundaries)
    assert equal_count_splits(torch.tensor([2, 3, 8, 9]), 2, 10) == [8]
    assert equal_count_splits(torch.tensor([], dtype=torch.int64), 2, 10) == [5]


def test_ok_topk_computes_a_threshold_anew_that_is_zero_or_far_off() -> None:
    def kept(method: OkTopK, step: int, scale: float) -> int:
        grads = [{name: scale * grad for name, grad in own.items()} for own in gradients(step)]
        return sum(int(torch.count_nonzero(u)) for u in method.step(step, grads).values())

    late = OkTopK(ITEMS, RANKS, 0.05)
    assert kept(late, 0, 0.0) == 0
    assert kept(late, 1, 1.0) == late.capacity
    jumping = OkTopK(ITEMS, RANKS, 0.05)
    assert kept(jumping, 0, 1.0) == jumping.capacity
    assert kept(jumping, 1, 100.0) > 2 * jumping.capacity
    assert kept(jumping, 2, 100.0) == jumping.capacity


def test_scheme_files_become_the_methods_they_name() -> None:
    table = {
        "scheme": {"compressor": "topk", "memory": "residual"},
        "compressor": {"topk": {"density": 0.1}},
        "rule": [{"match": {"dims": 1}, "compressor": "none"}],
    }
    scheme = make_scheme(table, ITEMS, RANKS)
    served = {type(m).__name__: [i.name for i in m.items] for m in scheme.methods}
    assert served == {"TopK": ["kernel", "weight"], "DenseMean": ["bias", "one"]}
    assert scheme.step(gradients(0)).keys() == {i.name for i in ITEMS}
    with pytest.raises(ValueError, match="not simulate"):
        make_scheme(table | {"compressor": {"topk": {"densitty": 0.1}}}, ITEMS, RANKS)
    with pytest.raises(ValueError, match="not simulate"):
        make_scheme({"scheme": {"compressor": "unheard-of"}}, ITEMS, RANKS)


def test_buckets_are_cut_greedily_in_backward_order() -> None:
    names = [[item.name for item in bucket] for bucket in buckets(ITEMS, 4 * 641)]
    assert names == [["one", "kernel", "bias"], ["weight"]]
    assert all(len(bucket) == 1 for bucket in buckets(ITEMS, 0))
