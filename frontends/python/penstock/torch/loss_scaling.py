"""torch's loss scaling (``torch.amp.GradScaler``) with gradients that are averaged over ranks.

The scaler reads gradients through ``optimizer.param_groups``: in ``unscale_``, or in ``step`` if
the program does not call ``unscale_``. It must find the averages there. Every rank then sees equal
infinities, and all ranks take or skip a step together.
"""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.common.gradient_set import GradientSet
    from penstock.torch.options import OptimizerOptions


def asked_by_scaler(frame: FrameType) -> bool:
    """True if the code of `frame` belongs to a gradient scaler of torch (of amp or of FSDP)."""
    module = frame.f_globals.get("__name__", "")
    return module.startswith("torch.") and module.endswith("grad_scaler")


def scaler_above() -> bool:
    """True if an enabled gradient scaler of torch is among the callers."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if asked_by_scaler(frame):
            scaler = frame.f_locals.get("self")
            return scaler is not None and scaler.is_enabled()
        frame = frame.f_back
    return False


def warn_of_untold_scale(options: OptimizerOptions, gradients: GradientSet, told_to: str) -> None:
    """Warns once if the scheme keeps residuals and the program has not set the loss scale:
    residuals would change their size with the scale. told_to: the variable name of the object with
    `set_grad_scale`."""
    if options.scale_told or not gradients.report().get("state_bytes"):
        return
    options.scale_told = True
    warnings.warn(
        "the loss is scaled, and this scheme keeps residuals between steps: call "
        f"{told_to}.set_grad_scale(scaler.get_scale()) before each loss.backward(), so that they "
        "keep their size when the scale changes",
        stacklevel=4,
    )


def leaves_out(optimizer: Any) -> bool:
    """For an optimizer that has ``_step_supports_amp_scaling``, whose ``step()`` a scaler therefore
    calls in every step: True if the scaler has found an infinity. Otherwise unscales gradients that
    are still scaled. If the user's optimizer does both itself, as torch's fused optimizers do,
    nothing happens.

    The scaler gives the optimizer the attributes found_inf and grad_scale, and deletes them after
    the step. They become None, because optimizers that do not scale refuse them."""
    given = optimizer.__dict__
    if given.get("found_inf") is None or given.get("_step_supports_amp_scaling", False):
        return False
    found, scale = given["found_inf"], given.get("grad_scale")
    given["found_inf"] = given["grad_scale"] = None
    if bool(found):
        return True
    if scale is not None:
        inverse = float(scale.double().reciprocal().float())
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(inverse)
    return False
