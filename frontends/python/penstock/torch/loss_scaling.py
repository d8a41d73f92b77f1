"""torch's loss scaling (``torch.amp.GradScaler``) with gradients that are averaged over ranks.

The scaler reads gradients through ``optimizer.param_groups``: in ``unscale_``, or in ``step`` if
the program does not call ``unscale_``. It must find the averages there. Every rank then sees equal
infinities, and all ranks take or skip a step together.
"""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import TYPE_CHECKING

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
