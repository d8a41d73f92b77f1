"""The times of the first and of later steps on a device. The first step loads kernels if
CUDA_MODULE_LOADING is LAZY, and makes plans.

    CUDA_MODULE_LOADING=EAGER mpirun -np 1 python first_step_on_device.py [--device cuda]
"""

from __future__ import annotations

import os
import time
from typing import Any

from one_device import main_of, say, settle
from train_on_device import SCHEMES, batch, make_model, with_optimizer

STEPS = 20


def times_of(scheme: str, device: Any) -> list[float]:
    """Milliseconds of every step, until the device has completed the step."""
    import torch

    import penstock.torch as hvd

    inputs, labels = (part.to(device) for part in batch(0, hvd.rank()))
    model = make_model().to(device)
    for _ in range(2):  # torch's own first-time costs
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    model.zero_grad()
    settle(device)
    model, optimizer, close = with_optimizer(model, scheme)
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        settle(device)
        times.append(1e3 * (time.perf_counter() - start))
    close()
    return times


def attempt(device: Any) -> bool:
    start = time.perf_counter()
    settle(device)
    began = 1e3 * (time.perf_counter() - start)
    say(f"CUDA_MODULE_LOADING={os.environ.get('CUDA_MODULE_LOADING', '')}; context {began:.1f} ms")
    for name, scheme in SCHEMES.items():
        times = times_of(scheme, device)
        rest = sorted(times[2:])
        say(
            f"{name}: first step {times[0]:.2f} ms, second {times[1]:.2f} ms, median of the others "
            f"{rest[len(rest) // 2]:.2f} ms"
        )
    return True


if __name__ == "__main__":
    main_of(__doc__, attempt)
