"""Steps of a model under torch.compile(mode="reduce-overhead"), whose gradients lie in the memory of
CUDA graphs: the losses must equal the losses of the model without torch.compile.

    mpirun -np 1 python compiled_on_device.py [--device cuda]
"""

from __future__ import annotations

from typing import Any

from one_device import Skipped, main_of, say, settle
from train_on_device import (
    SCHEMES,
    TOLERANCE,
    make_model,
    take_step,
    with_hook,
    with_optimizer,
)

STEPS = 20  # graphs are recorded in the second or third


def compiled(model: Any) -> Any:
    import torch

    return torch.compile(model, mode="reduce-overhead")


def train(model: Any, optimizer: Any, device: Any) -> list[float]:
    import torch

    losses = []
    for step in range(STEPS):
        torch.compiler.cudagraph_mark_step_begin()
        losses.append(take_step(model, optimizer, device, step).item())
    settle(device)
    return losses


def why_not_compiled(device: Any) -> str:
    """torch's own reason, for a model without Penstock."""
    import torch

    model = make_model().to(device)
    try:
        train(compiled(model), torch.optim.SGD(model.parameters(), lr=0.1), device)
    except Exception as error:  # noqa: BLE001  the compiler raises errors of many kinds
        return f"torch.compile does not work here: {str(error).strip()[:300]}"
    return ""


def attempt(device: Any) -> bool:
    import torch

    reason = why_not_compiled(device)
    if reason:
        raise Skipped(reason.replace("\n", " "))
    ways = {"DistributedOptimizer": with_optimizer, "ddp_hook": with_hook}
    right = True
    for way, wrap in ways.items():
        for name, scheme in SCHEMES.items():
            curves = []
            for change in (lambda model: model, compiled):
                torch.compiler.reset()
                # The inner model is compiled, and its hooks stay.
                called, optimizer, close = wrap(make_model().to(device), scheme)
                curves.append(train(change(called), optimizer, device))
                close()
            apart = max(abs(a - b) / abs(b) for a, b in zip(curves[1], curves[0]))
            right &= apart <= TOLERANCE and curves[1][-1] < curves[1][0]
            say(f"{way}, {name}: at most {apart:.2%} apart from the model that is not compiled")
    return right


if __name__ == "__main__":
    main_of(__doc__, attempt)
