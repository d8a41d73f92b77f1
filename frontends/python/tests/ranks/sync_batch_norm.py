"""SyncBatchNorm equals torch's BatchNorm over the joined batches of all ranks, in forward,
backward and running statistics."""

from __future__ import annotations

import torch
from support import begin, close, equal, expect, needs_torch, run_checks

import penstock.torch as hvd

CHANNELS = 4
CASES = [
    # torch's layer, shape after (N, C), layer's options
    (torch.nn.BatchNorm1d, (), {}),
    (torch.nn.BatchNorm1d, (5,), {"momentum": None}),
    (torch.nn.BatchNorm2d, (3, 2), {"affine": False}),
    (torch.nn.BatchNorm2d, (3, 2), {"track_running_stats": False}),
    (torch.nn.BatchNorm3d, (2, 1, 3), {"eps": 0.1, "momentum": 0.3}),
]


def batches(step: int, rest: tuple, dtype: torch.dtype) -> list[torch.Tensor]:
    """The ranks' batches, of uneven sizes; the last of several ranks has none at step 1."""
    generator = torch.Generator().manual_seed(step)
    sizes = [2 + r for r in range(hvd.size())]
    if step == 1 and hvd.size() > 1:
        sizes[-1] = 0
    return [
        torch.randn(n, CHANNELS, *rest, generator=generator, dtype=dtype) * 3 + 50 for n in sizes
    ]


def pair(kind: type, options: dict, dtype: torch.dtype) -> tuple[torch.nn.Module, torch.nn.Module]:
    """The layer under test and torch's layer, with equal parameters."""
    torch.manual_seed(3)
    plain = kind(CHANNELS, **options).to(dtype)
    for p in plain.parameters():
        torch.nn.init.normal_(p)
    ours = hvd.SyncBatchNorm(CHANNELS, **options).to(dtype)
    ours.load_state_dict(plain.state_dict())
    return ours, plain


def check_training_equals_batch_norm_of_the_joined_batch() -> None:
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 2e-4)):
        for kind, rest, options in CASES:
            ours, plain = pair(kind, options, dtype)
            for step in range(3):
                parts = batches(step, rest, dtype)
                mine = parts[hvd.rank()].clone().requires_grad_()
                whole = torch.cat(parts).requires_grad_()
                weights = torch.randn(whole.shape, dtype=dtype)  # equal on every rank
                first = sum(len(p) for p in parts[: hvd.rank()])
                rows = slice(first, first + len(mine))
                got, wanted = ours(mine), plain(whole)
                torch.testing.assert_close(got, wanted[rows], rtol=tolerance, atol=tolerance)
                ours.zero_grad()
                plain.zero_grad()
                (got * weights[rows]).sum().backward()
                (wanted * weights).sum().backward()
                torch.testing.assert_close(
                    mine.grad, whole.grad[rows], rtol=tolerance, atol=tolerance
                )
                for p, q in zip(ours.parameters(), plain.parameters()):
                    # Gradients of parameters are local. Their sum is the gradient of the whole
                    # batch.
                    together = hvd.allreduce(p.grad, op=hvd.Sum)
                    torch.testing.assert_close(
                        together, q.grad, rtol=10 * tolerance, atol=10 * tolerance
                    )
                assert ours.state_dict().keys() == plain.state_dict().keys()
                for a, b in zip(ours.buffers(), plain.buffers()):
                    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def check_evaluation_exchanges_nothing() -> None:
    ours, plain = pair(torch.nn.BatchNorm2d, {}, torch.float32)
    ours(torch.cat(batches(0, (3, 2), torch.float32)))
    plain.load_state_dict(ours.state_dict())
    ours.eval()
    plain.eval()
    if hvd.rank() == 0:  # alone
        x = torch.randn(3, CHANNELS, 3, 2)
        equal(ours(x), plain(x))
    hvd.barrier()


@needs_torch((2, 3), "batch normalisation of float16 on the CPU")
def check_half_precision_keeps_its_type_and_sums_in_float32() -> None:
    ours, _ = pair(torch.nn.BatchNorm1d, {}, torch.float32)
    reference, _ = pair(torch.nn.BatchNorm1d, {}, torch.float32)
    for dtype, tolerance in ((torch.float16, 1e-2), (torch.bfloat16, 1e-1)):
        x = batches(0, (), torch.float32)[hvd.rank()].to(dtype)
        got = ours(x.requires_grad_())
        assert got.dtype == dtype
        torch.testing.assert_close(got.float(), reference(x.float()), rtol=0, atol=tolerance)
        got.sum().backward()
        assert x.grad.dtype == dtype


def check_a_frozen_input_and_a_layer_without_gradients() -> None:
    ours, plain = pair(torch.nn.BatchNorm1d, {}, torch.float64)
    parts = batches(0, (), torch.float64)
    ours(parts[hvd.rank()]).sum().backward()  # the input needs no gradient, so nothing is exchanged
    first = sum(len(p) for p in parts[: hvd.rank()])
    with torch.no_grad():
        got = ours(parts[hvd.rank()])
        wanted = plain(torch.cat(parts))[first : first + len(parts[hvd.rank()])]
    torch.testing.assert_close(got, wanted)


def check_wrong_input_is_refused_on_every_rank() -> None:
    ours, _ = pair(torch.nn.BatchNorm1d, {}, torch.float32)
    with expect(ValueError, "at least 2D"):
        ours(torch.ones(4))
    with expect(ValueError, "channels"):
        ours(torch.ones(2, CHANNELS + 1))
    one = torch.ones(1 if hvd.rank() == 0 else 0, CHANNELS)
    with expect(ValueError, "more than 1 value per channel"):
        ours(one)


class Net(torch.nn.Module):
    """A convolution, a normalisation, a linear layer."""

    def __init__(self, normalisation: torch.nn.Module) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, CHANNELS, 3)
        self.norm = normalisation
        self.out = torch.nn.Linear(CHANNELS * 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(self.conv(x)).relu().flatten(1))


def check_training_a_network_equals_one_process_with_the_whole_batch() -> None:
    torch.manual_seed(11)
    plain = Net(torch.nn.BatchNorm2d(CHANNELS)).double()
    ours = Net(hvd.SyncBatchNorm(CHANNELS)).double()
    ours.load_state_dict(plain.state_dict())
    inner = torch.optim.SGD(ours.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(inner, ours.named_parameters())
    reference = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    for step in range(4):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(2 * hvd.size(), 2, 4, 4, generator=generator, dtype=torch.float64)
        optimizer.zero_grad()
        ours(x.chunk(hvd.size())[hvd.rank()]).square().mean().backward()
        optimizer.step()
        reference.zero_grad()
        plain(x).square().mean().backward()
        reference.step()
    close(ours, plain, 1e-9)
    for a, b in zip(ours.buffers(), plain.buffers()):
        torch.testing.assert_close(a, b)
    optimizer.close()


if __name__ == "__main__":
    begin()
    run_checks(globals())
