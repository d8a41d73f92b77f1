"""What the core is told of an optimizer before a step: learning rates, momentum, and the scale of
the loss. Only what has changed is told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from penstock.common.gradient_set import GradientSet
from penstock.torch.checks import has_momentum


class OptimizerOptions:
    """The options of the parameters of one set, which may belong to several optimizers.

    groups: gives the parameter groups; asked each time, for load_state_dict makes new ones.
    predivide: what gradients are divided by before the core sees them. Told as part of the scale,
        it changes no method that knows an absolute size.
    """

    def __init__(
        self, groups: Callable[[], Sequence[dict[str, Any]]], predivide: float = 1.0
    ) -> None:
        self.groups = groups
        self.scale_told = False
        self._predivide = predivide
        self._rates: dict[int, float] = {}
        self._has_momentum = False
        self._scale: float | None = 1.0 / predivide if predivide != 1.0 else None
        self._scale_in_force: float | None = None

    def of_new_set(self) -> None:
        """The next set is told everything anew; its flags say whether there is momentum now."""
        self._rates.clear()
        self._has_momentum = has_momentum(self.groups())
        if self._scale is None:
            self._scale = self._scale_in_force

    def scale_next(self, scale: float) -> None:
        """The loss scale of the next backward. ValueError unless it is above 0."""
        if not scale > 0:
            raise ValueError(f"grad scale is {scale}, expected a number above 0")
        self._scale = scale / self._predivide
        self.scale_told = True

    def tell_scale(self, gradients: GradientSet) -> None:
        """Before the first gradient of a step."""
        if self._scale is not None:
            gradients.set_grad_scale(self._scale)
            self._scale_in_force, self._scale = self._scale, None

    def tell(self, gradients: GradientSet, indices: Mapping[int, int]) -> None:
        """What schedulers of the learning rate and load_state_dict may have changed.

        indices: of the set's gradients, by the id of their parameter. HorovodInternalError where
        the optimizer has a momentum now that a memory has, too."""
        groups = self.groups()
        if not self._has_momentum and has_momentum(groups):
            gradients.set_momentum()
            self._has_momentum = True
        rates = {n: float(group["lr"]) for n, group in enumerate(groups) if "lr" in group}
        if rates == self._rates:
            return
        self._rates = rates
        of_gradients = [math.nan] * gradients.n_gradients
        for number, rate in rates.items():
            for parameter in groups[number]["params"]:
                index = indices.get(id(parameter))
                if index is not None:
                    of_gradients[index] = rate
        gradients.set_learning_rates(of_gradients)
