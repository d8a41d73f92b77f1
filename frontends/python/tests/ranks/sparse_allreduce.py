"""Sums of sparse tensors."""

from __future__ import annotations

import torch
from support import begin, equal, expect, run_checks

import penstock.torch as hvd


def rows_of(rank: int, dtype: torch.dtype) -> torch.Tensor:
    """A rank's sparse 10 x 2 tensor: row 0, which every rank has, and rows of its own, where one
    row occurs twice."""
    indices = torch.tensor([[0, rank + 1, rank + 1, 9]])
    values = (torch.arange(8).reshape(4, 2) + 10 * rank).to(dtype)
    return torch.sparse_coo_tensor(indices, values, (10, 2), check_invariants=True)


def check_sparse_sum_and_mean() -> None:
    size = hvd.size()
    for dtype in (torch.float32, torch.float64, torch.int64):
        everyone = sum(rows_of(r, torch.float64).to_dense() for r in range(size))
        own = rows_of(hvd.rank(), dtype)
        wait = hvd.sparse_allreduce_async(own, name="rows", op=hvd.Sum)
        assert callable(wait)
        got = wait()
        assert got.is_sparse and got.shape == own.shape and got.dtype == dtype
        equal(got.to_dense(), everyone.to(dtype))
    mean = hvd.sparse_allreduce_async(
        rows_of(hvd.rank(), torch.float64), name="rows", op=hvd.Average
    )()
    torch.testing.assert_close(mean.to_dense(), everyone / size)


def check_ranks_without_entries_take_part() -> None:
    empty = torch.sparse_coo_tensor(torch.zeros(1, 0).long(), torch.zeros(0, 2), (10, 2))
    own = empty if hvd.rank() == 0 else rows_of(hvd.rank(), torch.float32)
    got = hvd.sparse_allreduce_async(own, "some", hvd.Sum)()
    expected = sum(
        (rows_of(r, torch.float32).to_dense() for r in range(1, hvd.size())), torch.zeros(10, 2)
    )
    equal(got.to_dense(), expected)


def check_entries_of_matrices() -> None:
    own = torch.tensor([[0.0, hvd.rank() + 1.0], [2.0, 0.0]]).to_sparse()
    got = hvd.sparse_allreduce_async(own, "matrix", hvd.Sum)()
    ranks = sum(r + 1.0 for r in range(hvd.size()))
    equal(got.to_dense(), torch.tensor([[0.0, ranks], [2.0 * hvd.size(), 0.0]]))


def check_what_is_not_sparse_or_not_a_sum_is_refused() -> None:
    with expect(ValueError, "sparse"):
        hvd.sparse_allreduce_async(torch.ones(3), "dense", hvd.Sum)
    with expect(ValueError, "Average or Sum"):
        hvd.sparse_allreduce_async(rows_of(0, torch.float32), "max", hvd.Max)
    with expect(NotImplementedError, "Adasum"):
        hvd.sparse_allreduce_async(rows_of(0, torch.float32), "adasum", hvd.Adasum)


if __name__ == "__main__":
    begin()
    run_checks(globals())
