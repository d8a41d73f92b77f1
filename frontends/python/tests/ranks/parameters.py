"""Ranks that begin with different parameters, like a script that broadcasts only later. Prints
whether its first step was taken."""

from __future__ import annotations

import torch
from support import begin, run_checks

import penstock.torch as hvd


def check_the_first_step_of_parameters_that_differ() -> None:
    model = torch.nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.fill_(hvd.rank())
        model.bias.fill_(0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    model(torch.ones(1, 3)).sum().backward()
    try:
        optimizer.step()
    except hvd.HorovodInternalError as error:
        assert "parameter weight differs" in str(error), error
        print("its first step was refused", flush=True)
    else:
        print("its first step was taken", flush=True)
    optimizer.close()


if __name__ == "__main__":
    begin()
    run_checks(globals())
