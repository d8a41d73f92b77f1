"""One sum, of more elements than an opening or a segment holds."""

from __future__ import annotations

import torch
from support import begin, run_checks

import penstock.torch as hvd


def check_a_sum_is_that_of_all_ranks() -> None:
    mine = torch.full((300_000,), float(hvd.rank() + 1))
    total = hvd.size() * (hvd.size() + 1) / 2
    assert torch.equal(hvd.allreduce(mine, op=hvd.Sum), torch.full((300_000,), total))


if __name__ == "__main__":
    begin()
    run_checks(globals())
