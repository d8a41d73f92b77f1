"""LocalSteps on a device: anchors beside the parameters, and anchors in host memory, are those of
the CPU, under a dense and a sparse scheme, with an exchange that hides behind steps.

    python -m torch.distributed.run --nproc-per-node 2 over_gloo.py far_apart_on_device.py
"""

from __future__ import annotations

from typing import Any

from one_device import main_of, say
from train_on_device import make_model

SCHEMES = {
    "dense": '[scheme]\ncompressor = "none"\n',
    "topk": '[scheme]\ncompressor = "topk"\nmemory = "residual"\n[compressor.topk]\ndensity = 0.1\n',
}
STEPS = 20
TOLERANCE = 1e-5  # parameters are mixed with fused operations on a device


def anchors_after(device: Any, scheme: str, where: Any) -> Any:
    """The anchors on the CPU, in one tensor, after steps in which each rank's parameters move by
    values that are drawn on the CPU."""
    import torch

    import penstock.torch as hvd

    model = make_model().to(device)
    inner = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer = hvd.LocalSteps(
        inner,
        every=6, fragments=2, delay=1, mix=0.5, scheme=scheme, anchors=where,
        named_parameters=model.named_parameters(),
    )  # fmt: skip
    generator = torch.Generator().manual_seed(hvd.rank())
    optimizer.anchors()
    for _ in range(STEPS):
        with torch.no_grad():
            for parameter in model.parameters():
                moved = 0.1 * torch.randn(parameter.shape, generator=generator)
                parameter.add_(moved.to(device))
        optimizer.step()
    optimizer.synchronize()
    found = [anchor.detach().cpu().reshape(-1) for anchor in optimizer.anchors().values()]
    held = [parameter.detach().cpu().reshape(-1) for parameter in model.parameters()]
    assert torch.equal(torch.cat(found), torch.cat(held)), "a parameter is not its anchor"
    optimizer.close()
    return torch.cat(found)


def agrees(device: Any) -> bool:
    import torch

    is_right = True
    for name, scheme in SCHEMES.items():
        expected = anchors_after(torch.device("cpu"), scheme, None)
        for where in (None, "cpu"):
            found = anchors_after(device, scheme, where)
            apart = ((found - expected).abs().max() / expected.abs().max()).item()
            say(f"{name}, anchors={where!r}: {apart:.1e} from the CPU")
            is_right = is_right and apart <= TOLERANCE
    return is_right


if __name__ == "__main__":
    main_of(__doc__, agrees)
