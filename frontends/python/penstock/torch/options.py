"""Reports an optimizer's learning rates, momentum and loss scale to the core before a step. Only
changed values are reported."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from penstock.common.gradient_set import GradientSet
from penstock.torch.checks import has_momentum


class OptimizerOptions:
    """The options of the parameters of one set, which may belong to several optimizers.

    groups: returns the parameter groups. It is called each time, because load_state_dict makes new
        groups.
    predivide: the divisor of gradients before the core receives them. It is reported as part of
        the scale, so that methods with an absolute size, such as a threshold, are not affected.
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
        """Prepares for a new set, which receives all values again. The flags of that set state
        whether the optimizer has momentum now."""
        self._rates.clear()
        self._has_momentum = has_momentum(self.groups())
        if self._scale is None:
            self._scale = self._scale_in_force

    def scale_next(self, scale: float) -> None:
        """Stores the loss scale of the next backward. ValueError unless it is above 0."""
        if not scale > 0:
            raise ValueError(f"grad scale is {scale}, expected a number above 0")
        self._scale = scale / self._predivide
        self.scale_told = True

    def tell_scale(self, gradients: GradientSet) -> None:
        """Reports a new loss scale to the core. Call it before the first gradient of a step."""
        if self._scale is not None:
            gradients.set_grad_scale(self._scale)
            self._scale_in_force, self._scale = self._scale, None

    def tell(self, gradients: GradientSet, indices: Mapping[int, int]) -> None:
        """Reports momentum and learning rates to the core if they have changed, for example by a
        scheduler of the learning rate or by load_state_dict.

        indices: index of each gradient in the set, by the id of its parameter. HorovodInternalError
        if the optimizer now has a momentum and a memory of the set has one too."""
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
