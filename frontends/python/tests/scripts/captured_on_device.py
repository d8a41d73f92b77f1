"""A CUDA graph of another model is captured while a deferred exchange runs: the runtime's threads
ask the device all the while, and must not spoil the capture, nor the exchange be spoilt by it.

    python -m torch.distributed.run --nproc-per-node 2 over_gloo.py captured_on_device.py

With two ranks the second comes late to every step, so that the exchange of the first goes on during
its capture. The capture's mode is torch's own, which watches all threads of the process.
"""

from __future__ import annotations

import time
from typing import Any

from one_device import Skipped, main_of, say, settle
from train_on_device import make_model

DEFERRED = '[scheme]\ncompressor = "none"\nscheduler = "dear"\nroute = "split"\n'
ROUNDS = 5
LATE_S, CAPTURED_S = 0.1, 0.3


def captured(work: Any, inputs: Any, outputs: Any, seconds: float) -> Any:
    """The graph of `outputs = work(inputs)`, captured for at least `seconds`."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = inputs
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            result = work(inputs)
            time.sleep(0.01)
        outputs.copy_(result)
    return graph


def attempt(device: Any) -> bool:
    import torch

    import penstock.torch as hvd

    if device.type != "cuda":
        raise Skipped("what is captured is work of a CUDA device")
    model, other = make_model().to(device), make_model().to(device)
    optimizer: Any = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), scheme=DEFERRED
    )
    inputs = torch.randn(64, 32, device=device)
    outputs = torch.zeros(64, 10, device=device)
    right = True
    with torch.no_grad():
        expected = other(inputs).clone()
    for number in range(ROUNDS):
        if hvd.rank() > 0:
            time.sleep(LATE_S)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()  # the exchange is still running
        if hvd.rank() == 0:
            with torch.no_grad():
                graph = captured(other, inputs, outputs, CAPTURED_S)
            graph.replay()
            settle(device)
            right &= bool(torch.equal(outputs, expected))
        optimizer.flush()
        say(f"round {number}: captured, replayed, {'right' if right else 'WRONG'}; flushed")
    digest = torch.cat([one.detach().flatten() for one in model.parameters()]).double().sum().item()
    same = len(set(hvd.allgather_object(digest))) == 1
    say(f"parameters of all ranks are {'equal' if same else 'NOT equal'}")
    optimizer.close()
    return all(hvd.allgather_object(right)) and same


if __name__ == "__main__":
    main_of(__doc__, attempt)
