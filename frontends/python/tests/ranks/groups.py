"""Grouped operations: several tensors under one name and one handle."""

from __future__ import annotations

import warnings

import torch
from support import begin, equal, expect, run_checks, value

import penstock.torch as hvd

SHAPES = [(5, 3), (), (17,), (4, 2)]


def tensors(rank: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """A rank's tensors, of several shapes."""
    return [value(rank, shape, dtype) for shape in SHAPES]


def sums(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """The sums over ranks."""
    everyone = [tensors(r, dtype) for r in range(hvd.size())]
    return [torch.stack(column).sum(0).to(dtype) for column in zip(*everyone)]


def all_equal(got: object, expected: list[torch.Tensor], kind: type) -> None:
    """`got` is a `kind` that contains the expected tensors."""
    assert type(got) is kind, f"a {type(got).__name__}, expected a {kind.__name__}"
    assert len(got) == len(expected)
    for one, wanted in zip(got, expected):
        equal(one, wanted)


def check_grouped_allreduce_gives_a_list_and_its_async_form_a_tuple() -> None:
    for dtype in (torch.int32, torch.int64, torch.float16, torch.float32, torch.float64):
        own = tensors(hvd.rank(), dtype)
        all_equal(hvd.grouped_allreduce(own, op=hvd.Sum), sums(dtype), list)
        all_equal(own, tensors(hvd.rank(), dtype), list)
        handle = hvd.grouped_allreduce_async(own, op=hvd.Sum, name="group")
        all_equal(hvd.synchronize(handle), sums(dtype), tuple)
        assert hvd.synchronize(handle) is None
    mixed = [torch.ones(3), torch.ones(2, dtype=torch.int64)]
    all_equal(
        hvd.grouped_allreduce(mixed, op=hvd.Sum), [one * hvd.size() for one in mixed], list
    )


def check_grouped_allreduce_in_place() -> None:
    own = tensors(hvd.rank())
    got = hvd.grouped_allreduce_(own, op=hvd.Sum)
    assert all(one is mine for one, mine in zip(got, own))
    all_equal(got, sums(), list)
    own = tensors(hvd.rank())
    got = hvd.synchronize(hvd.grouped_allreduce_async_(own, op=hvd.Sum))
    assert all(one is mine for one, mine in zip(got, own))
    all_equal(own, sums(), list)


def check_grouped_allreduce_averages_scales_and_compresses() -> None:
    own = tensors(hvd.rank())
    for one, total in zip(hvd.grouped_allreduce(own), sums()):
        torch.testing.assert_close(one, total / hvd.size())
    scales = {"prescale_factor": 0.5, "postscale_factor": 4.0}
    all_equal(
        hvd.grouped_allreduce(own, op=hvd.Sum, **scales), [total * 2 for total in sums()], list
    )
    all_equal(
        hvd.grouped_allreduce(own, None, None, hvd.Compression.fp16, hvd.Sum), sums(), list
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        all_equal(hvd.grouped_allreduce(own, average=False), sums(), list)
        assert [w.category for w in caught] == [DeprecationWarning]


def check_grouped_allgather_of_ragged_rows() -> None:
    size, rank = hvd.size(), hvd.rank()

    def parts(r: int) -> list[torch.Tensor]:
        return [value(r, (r * 2, 3), torch.int16), value(r, (1 + r,), torch.float64)]

    expected = [torch.cat(column) for column in zip(*(parts(r) for r in range(size)))]
    all_equal(hvd.grouped_allgather(parts(rank)), expected, list)
    handle = hvd.grouped_allgather_async(parts(rank), name="ragged")
    all_equal(hvd.synchronize(handle), expected, tuple)


def check_grouped_reducescatter() -> None:
    size, rank = hvd.size(), hvd.rank()
    shapes = [(size + 1, 2), (3,)]
    own = [value(rank, shape, torch.float32) for shape in shapes]
    totals = [sum(value(r, shape, torch.float32) for r in range(size)) for shape in shapes]
    expected = [torch.tensor_split(total, size)[rank] for total in totals]
    all_equal(hvd.grouped_reducescatter(own, op=hvd.Sum), expected, list)
    all_equal(
        hvd.grouped_reducescatter(own, "g", hvd.Compression.fp16, hvd.Sum), expected, list
    )
    handle = hvd.grouped_reducescatter_async(own, "named", hvd.Sum)
    all_equal(hvd.synchronize(handle), expected, tuple)
    for one, total in zip(hvd.grouped_reducescatter(own), expected):
        torch.testing.assert_close(one, total / size)


def check_groups_have_gradients() -> None:
    size, rank = hvd.size(), hvd.rank()
    x = [torch.ones(3, requires_grad=True), torch.ones(2, 2, requires_grad=True)]
    first, second = hvd.grouped_allreduce(x, op=hvd.Sum)
    (first.sum() * rank + second.sum() * 2 * rank).backward()
    everyone = float(sum(range(size)))
    equal(x[0].grad, torch.full((3,), everyone))
    equal(x[1].grad, torch.full((2, 2), 2 * everyone))
    y = [torch.ones(rank + 1, requires_grad=True), torch.ones(2, requires_grad=True)]
    first, second = hvd.grouped_allgather(y)
    weights = torch.arange(float(first.numel()))
    ((first * weights).sum() + second.sum()).backward()
    begin_at = rank * (rank + 1) // 2
    torch.testing.assert_close(y[0].grad, weights[begin_at : begin_at + rank + 1])
    torch.testing.assert_close(y[1].grad, torch.ones(2))
    z = [torch.ones(size, requires_grad=True), torch.ones(size + 1, requires_grad=True)]
    first, second = hvd.grouped_reducescatter(z, op=hvd.Sum)
    ((first.sum() + second.sum()) * (rank + 1)).backward()
    equal(z[0].grad, torch.arange(1.0, size + 1) * size)


def check_a_group_that_cannot_start_leaves_its_name_free() -> None:
    good, bad = torch.ones(3), torch.ones(3, dtype=torch.int8)
    with expect(ValueError, "not supported"):
        hvd.grouped_allreduce([good, bad], name="again")
    for nothing in ([], torch.ones(3), None):
        with expect(ValueError, "list of at least one"):
            hvd.grouped_allreduce(nothing)
    all_equal(
        hvd.grouped_allreduce([good], name="again", op=hvd.Sum), [good * hvd.size()], list
    )
    first = hvd.grouped_allreduce_async([good], name="again")
    with expect(ValueError, "grouped_allreduce.again"):
        hvd.grouped_allreduce_async([good], name="again")
    assert len(hvd.synchronize(first)) == 1


def check_ranks_that_disagree_about_one_tensor_of_a_group_all_hear_it() -> None:
    if hvd.size() == 1:
        return
    with expect(hvd.HorovodInternalError, "shape"):
        hvd.grouped_allreduce([torch.ones(3), torch.ones(2 + hvd.rank())], name="ragged")
    all_equal(hvd.grouped_allreduce([torch.ones(3)]), [torch.ones(3)], list)


if __name__ == "__main__":
    begin()
    run_checks(globals())
