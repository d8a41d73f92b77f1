"""Accelerate on one device: its prepared model and optimizer take steps through Penstock, by the
hook if Accelerate has made a DDP model, otherwise by DistributedOptimizer.

    python -m torch.distributed.run --nproc-per-node 1 over_gloo.py accelerate_on_device.py
"""

from __future__ import annotations

from typing import Any

from one_device import Skipped, main_of, say
from train_on_device import SCHEMES, make_model, take_step

STEPS = 20


def prepared(accelerator: Any, scheme: str) -> tuple[Any, Any, Any, str]:
    """The model to call, the optimizer, the function that ends the exchange, and the kind of
    exchange."""
    import torch

    import penstock.torch as hvd
    from penstock.torch import PenstockState, ddp_hook

    model = accelerator.prepare(make_model())
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    if hasattr(model, "register_comm_hook"):
        state = PenstockState(scheme)
        model.register_comm_hook(state, ddp_hook)
        return model, accelerator.prepare(plain), state.close, "ddp_hook"
    optimizer: Any = hvd.DistributedOptimizer(plain, model.named_parameters(), scheme=scheme)
    return model, accelerator.prepare(optimizer), optimizer.close, "DistributedOptimizer"


def attempt(device: Any) -> bool:
    try:
        from accelerate import Accelerator
    except ImportError as error:
        raise Skipped(f"Accelerate is not installed: {error}") from error
    accelerator = Accelerator(cpu=device.type == "cpu")
    right = True
    for name, scheme in SCHEMES.items():
        model, optimizer, close, way = prepared(accelerator, scheme)
        losses = [
            take_step(model, optimizer, accelerator.device, step, accelerator.backward).item()
            for step in range(STEPS)
        ]
        close()
        right &= losses[-1] < losses[0]
        say(f"{accelerator.device}, {way}, {name}: loss {losses[0]:.4f} to {losses[-1]:.4f}")
    return right


if __name__ == "__main__":
    main_of(__doc__, attempt)
