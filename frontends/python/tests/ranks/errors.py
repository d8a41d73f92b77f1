"""Ranks that disagree: every rank raises an equal error, and later operations work."""

from __future__ import annotations

import torch
from support import begin, equal, expect, run_checks

import penstock.torch as hvd


def check_mismatched_shapes() -> None:
    if hvd.size() == 1:
        return
    with expect(hvd.HorovodInternalError, "shape"):
        hvd.allreduce(torch.ones(3 + hvd.rank()), name="shape")
    with expect(hvd.HorovodInternalError, "rows"):
        hvd.allgather(torch.ones(2, 3 + hvd.rank()), name="rows")
    with expect(hvd.HorovodInternalError):
        hvd.broadcast(torch.ones(3 + hvd.rank()), 0, name="shape")
    equal(hvd.allreduce(torch.ones(3), op=hvd.Sum), torch.full((3,), float(hvd.size())))


def check_mismatched_types() -> None:
    if hvd.size() == 1:
        return
    with expect(hvd.HorovodInternalError, "type"):
        hvd.allreduce(torch.ones(3).to(torch.float64 if hvd.rank() else torch.float32), name="type")


def check_mismatched_reductions_scales_and_roots() -> None:
    if hvd.size() == 1:
        return
    with expect(hvd.HorovodInternalError):
        hvd.allreduce(torch.ones(3), name="op", op=hvd.Max if hvd.rank() else hvd.Sum)
    with expect(hvd.HorovodInternalError):
        hvd.allreduce(torch.ones(3), name="scale", prescale_factor=1.0 + hvd.rank())
    with expect(hvd.HorovodInternalError):
        hvd.broadcast(torch.ones(3), root_rank=hvd.rank(), name="root")


def check_what_is_wrong_here_is_said_here() -> None:
    with expect(ValueError, "contiguous"):
        hvd.allreduce(torch.ones(4, 4).t()[1:])
    with expect(ValueError, "not supported"):
        hvd.allreduce(torch.ones(4, dtype=torch.int8))
    with expect(ValueError, "not supported"):
        hvd.broadcast(torch.ones(4, dtype=torch.bool), 0)
    with expect(ValueError, "expected Average"):
        hvd.allreduce(torch.ones(4), op=6)
    with expect(NotImplementedError, "Adasum", "later"):
        hvd.allreduce(torch.ones(4), op=hvd.Adasum)
    with expect(ValueError, "process_set"):
        hvd.allreduce(torch.ones(4), process_set=object())


def check_optimizers_of_different_models() -> None:
    if hvd.size() == 1:
        return
    layer = torch.nn.Linear(3 + hvd.rank(), 2)
    with expect(hvd.HorovodInternalError):
        hvd.DistributedOptimizer(
            torch.optim.SGD(layer.parameters(), lr=0.1), layer.named_parameters()
        )


MISFITS = {
    # Schemes that cannot work, with the words of the error: the names of the parties, or the
    # remedy.
    'compressor = "dgc"\nmemory = "dgc"': ("momentum", "dgc"),
    'compressor = "topk"\nmemory = "residual"\nscheduler = "dear"\nroute = "split"': (
        "topk",
        "split",
    ),
    'compressor = "none"\nscheduler = "fusion"\nroute = "split"': ("fusion", "split"),
    'collective = "oktopk"\ntransport = "mpi"': ("oktopk", "none"),
    'collective = "oktopk"\ncompressor = "topk"\nmemory = "residual"': ("oktopk", "transport"),
}


def check_parties_that_do_not_fit_are_named_on_every_rank() -> None:
    if hvd.size() == 1:
        return
    for scheme, words in MISFITS.items():
        layer = torch.nn.Linear(40, 50)
        inner = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
        with expect(hvd.HorovodInternalError, *words):
            hvd.DistributedOptimizer(
                inner, layer.named_parameters(), scheme=f"[scheme]\n{scheme}\n"
            )


def check_a_nan_on_one_rank_reaches_all_and_leaves_nothing_behind() -> None:
    if hvd.size() == 1:
        return
    for scheme in ("", 'compressor = "topk"\nmemory = "residual"', 'compressor = "signsgd"'):
        layer = torch.nn.Linear(40, 50)
        hvd.broadcast_parameters(layer.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(layer.parameters(), lr=0.1),
            layer.named_parameters(),
            scheme=f"[scheme]\n{scheme}\n",
        )
        for bad in (True, False):
            optimizer.zero_grad()
            x = torch.randn(4, 40)
            if bad and hvd.rank() == 1:
                x[2, 7] = float("nan")
            layer(x).square().mean().backward()
            optimizer.synchronize()
            for p in layer.parameters():
                assert bool(torch.isnan(p.grad).all() if bad else torch.isfinite(p.grad).all())
            optimizer.skip_step()
        optimizer.close()


if __name__ == "__main__":
    begin()
    run_checks(globals())
