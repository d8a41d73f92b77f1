"""All-to-all and reduce-scatter: distributed rows, with every way to give their numbers."""

from __future__ import annotations

import torch
from support import MOVABLE, REDUCIBLE, begin, equal, expect, run_checks, value

import penstock.torch as hvd


def piece(source: int, target: int, rows: int, dtype: torch.dtype) -> torch.Tensor:
    """The rows that rank `source` sends to rank `target`. Every element shows both ranks."""
    return torch.full((rows, 2), source * 8 + target).to(dtype)


def check_alltoall_of_equal_parts() -> None:
    size, rank = hvd.size(), hvd.rank()
    for dtype in MOVABLE:
        sent = torch.cat([piece(rank, to, 3, dtype) for to in range(size)])
        received = hvd.alltoall(sent)
        assert isinstance(received, torch.Tensor), "without splits the sync form gives no pair"
        equal(received, torch.cat([piece(source, rank, 3, dtype) for source in range(size)]))
    equal(hvd.alltoall(torch.zeros(0, 3)), torch.zeros(0, 3))


def check_alltoall_with_splits_gives_what_came_from_each_rank() -> None:
    size, rank = hvd.size(), hvd.rank()
    # Rank s sends s + t rows to rank t. Some rows are sent to no rank.
    splits = [rank + to for to in range(size)]
    for dtype in MOVABLE:
        sent = torch.cat([piece(rank, to, rows, dtype) for to, rows in enumerate(splits)])
        sent = torch.cat([sent, piece(7, 7, 2, dtype)])
        expected = torch.cat([piece(source, rank, source + rank, dtype) for source in range(size)])
        for given in (splits, torch.tensor(splits, dtype=torch.int32)):
            received, counts = hvd.alltoall(sent, given)
            equal(received, expected)
            equal(counts, torch.tensor([source + rank for source in range(size)]).int())


def check_alltoall_async_always_gives_the_pair() -> None:
    size, rank = hvd.size(), hvd.rank()
    sent = torch.arange(float(size)) + 10 * rank
    expected = torch.arange(float(size)) * 10 + rank
    ones = torch.ones(size, dtype=torch.int32)
    for splits in (None, ones):
        received, counts = hvd.synchronize(hvd.alltoall_async(sent, splits, name="pair"))
        equal(received, expected)
        equal(counts, ones)


def check_alltoall_refuses_splits_that_do_not_fit() -> None:
    size = hvd.size()
    wrong = {
        "one too few": torch.zeros(size - 1, dtype=torch.int32),
        "two dimensions": torch.zeros(1, size, dtype=torch.int32),
        "too many rows": torch.full((size,), 5, dtype=torch.int32),
        "negative": torch.full((size,), -1, dtype=torch.int32),
        "not whole": torch.zeros(size, dtype=torch.float32),
        "64 bits": torch.zeros(size, dtype=torch.int64),
    }
    for _, splits in wrong.items():
        with expect(ValueError, "split"):
            hvd.alltoall(torch.ones(4), splits)
    with expect(ValueError, "scalar"):
        hvd.alltoall(torch.tensor(1.0))
    if size > 1:
        with expect(ValueError, "splits"):
            hvd.alltoall(torch.ones(size + 1))
        with expect(hvd.HorovodInternalError, "shape"):
            hvd.alltoall(torch.ones(size, 2 + hvd.rank()), name="columns")


def check_alltoall_has_gradients() -> None:
    size, rank = hvd.size(), hvd.rank()
    splits = torch.tensor([rank + to for to in range(size)], dtype=torch.int32)
    rows = int(splits.sum()) + 1
    x = torch.ones(rows, 2, requires_grad=True)
    received, _ = hvd.alltoall(x, splits)
    # Each receiver multiplies its rows by a number of its rank, so a row's gradient shows its
    # receiver.
    (received * (rank + 1.0)).sum().backward()
    went = [torch.full((rank + to, 2), to + 1.0) for to in range(size)]
    equal(x.grad, torch.cat([*went, torch.zeros(1, 2)]))
    y = torch.ones(size, requires_grad=True)
    (hvd.alltoall(y) * (rank + 1.0)).sum().backward()
    equal(y.grad, torch.arange(1.0, size + 1))


def share(whole: torch.Tensor) -> torch.Tensor:
    """This rank's rows. If rows remain, the lowest ranks get one more row each."""
    return torch.tensor_split(whole, hvd.size())[hvd.rank()].clone()


def check_reducescatter_of_any_number_of_rows() -> None:
    size, rank = hvd.size(), hvd.rank()
    for dtype in REDUCIBLE:
        for shape in [(0,), (1,), (size,), (size + 1, 3), (2 * size - 1, 2, 2), (7, 0)]:
            everyone = torch.stack([value(r, shape, dtype).double() for r in range(size)])
            own = value(rank, shape, dtype)
            equal(hvd.reducescatter(own, op=hvd.Sum), share(everyone.sum(0)).to(dtype))
            equal(own, value(rank, shape, dtype))
            average = hvd.reducescatter(own)
            exact = share(everyone.mean(0))
            if dtype.is_floating_point:
                rtol = 2 * torch.finfo(dtype).eps
                torch.testing.assert_close(average.double(), exact, rtol=rtol, atol=0)
            else:
                equal(average, exact.trunc().to(dtype))


def check_reducescatter_scales_compresses_and_waits() -> None:
    size, rank = hvd.size(), hvd.rank()
    own = value(rank, (size + 1, 2), torch.float32)
    total = share(sum(value(r, (size + 1, 2), torch.float32) for r in range(size)))
    scales = {"prescale_factor": 0.5, "postscale_factor": 4.0}
    equal(hvd.reducescatter(own, op=hvd.Sum, **scales), total * 2)
    equal(hvd.reducescatter(own, None, hvd.Compression.fp16, hvd.Sum), total)
    handle = hvd.reducescatter_async(own, "named", hvd.Sum, hvd.global_process_set, 0.5, 4.0)
    equal(hvd.synchronize(handle), total * 2)
    for op, result in ((hvd.Min, 0), (hvd.Max, size - 1)):
        equal(hvd.reducescatter(own, op=op), share(value(result, (size + 1, 2), torch.float32)))


def check_reducescatter_of_narrow_values_adds_in_float32() -> None:
    size, rank = hvd.size(), hvd.rank()
    # A sum in float16 or bfloat16 would stay at the first rank's value, because a half of its unit
    # comes from each other rank.
    for kind, dtype, first in (
        (hvd.Compression.fp16, torch.float16, 2048.0),
        (hvd.Compression.bf16, torch.bfloat16, 256.0),
    ):
        own = torch.full((size + 1, 3), 1.0 if rank > 0 else first)
        own[:, 1] = 0.1 * (rank + 1)  # no number of the type
        everyone = [torch.full((size + 1, 3), 1.0 if r > 0 else first) for r in range(size)]
        for r, theirs in enumerate(everyone):
            theirs[:, 1] = 0.1 * (r + 1)
        total = sum(theirs.to(dtype).double() for theirs in everyone)
        for op, result in ((hvd.Sum, total), (hvd.Average, total / size)):
            expected = share(result.to(dtype).float())
            got = hvd.reducescatter(own, compression=kind, op=op)
            assert got.dtype == torch.float32
            equal(got, expected)
            for one in hvd.grouped_reducescatter([own, own], compression=kind, op=op):
                equal(one, expected)
        equal(hvd.allreduce(own, compression=kind, op=hvd.Sum), total.to(dtype).float())
        x = own.clone().requires_grad_()
        hvd.reducescatter(x, compression=kind, op=hvd.Sum).sum().backward()
        equal(x.grad, torch.full_like(x, float(size)))
        counts = torch.arange(size + 1)
        equal(hvd.reducescatter(counts, compression=kind, op=hvd.Sum), share(counts * size))


def check_reducescatter_refuses_what_it_cannot_take() -> None:
    with expect(ValueError, "scalar"):
        hvd.reducescatter(torch.tensor(1.0))
    with expect(NotImplementedError, "Adasum"):
        hvd.reducescatter(torch.ones(4), op=hvd.Adasum)
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.bool):
        with expect(ValueError, "not supported"):
            hvd.reducescatter(torch.ones(4).to(dtype))
    with expect(ValueError, "contiguous"):
        hvd.reducescatter(torch.ones(4, 4).t())
    if hvd.size() > 1:
        with expect(hvd.HorovodInternalError, "shape"):
            hvd.reducescatter(torch.ones(4, 2 + hvd.rank()), name="columns")
        with expect(hvd.HorovodInternalError):
            hvd.reducescatter(torch.ones(4), name="op", op=hvd.Max if hvd.rank() else hvd.Sum)


def check_reducescatter_has_gradients() -> None:
    size, rank = hvd.size(), hvd.rank()
    weights = [torch.full_like(part, r + 1.0) for r, part in enumerate(
        torch.tensor_split(torch.ones(size + 1, 2), size)
    )]  # fmt: skip
    gathered = torch.cat(weights)
    for op, factor in ((hvd.Sum, size), (hvd.Average, 1)):
        for scales in ((1.0, 1.0), (0.5, 3.0)):
            x = torch.ones(size + 1, 2, requires_grad=True)
            part = hvd.reducescatter(
                x, op=op, prescale_factor=scales[0], postscale_factor=scales[1]
            )
            (part * (rank + 1.0)).sum().backward()
            equal(x.grad, gathered * (factor * scales[0] * scales[1]))


if __name__ == "__main__":
    begin()
    run_checks(globals())
