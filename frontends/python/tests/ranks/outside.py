"""Rank 0 is outside the process set of the only optimizer, which the first argument names."""

from __future__ import annotations

import sys
from typing import Any

import torch
from support import say

import penstock.torch as hvd

last = hvd.ProcessSet([1])
hvd.init(process_sets=[last])
model = torch.nn.Linear(4, 2)
arguments: dict[str, Any] = {"every": 1} if sys.argv[1] == "LocalSteps" else {}
optimizer = getattr(hvd, sys.argv[1])(
    torch.optim.SGD(model.parameters(), lr=0.1),
    named_parameters=model.named_parameters(),
    process_set=last,
    **arguments,
)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
say(f"trained {optimizer.counters()['steps']}")
hvd.shutdown()
