"""Slots: the gradient of one parameter, from backward to the core and back.

If possible, the core works in the gradient's own memory, also on a device. Otherwise the slot keeps
a staging tensor (another element type, layout or device) or the tensor that the user's compressor
made, and `finish` copies the result back. A sparse gradient that travels dense becomes sparse again
in `finish`.
"""

from __future__ import annotations

from typing import Any

import torch

from penstock import _library as c
from penstock.common.devices import HOST
from penstock.common.gradient_set import GradientSet, GradientSpec
from penstock.common.operation import TensorView
from penstock.torch import devices
from penstock.torch.compression import BF16Compressor, FP16Compressor, NoneCompressor
from penstock.torch.tensors import (
    DTYPES,
    check_has_values,
    gradient_dtype,
    may_be_written,
    plain_copy,
    readable_by_address,
    zero_gradient,
)


class Slot:
    """A parameter's place in an exchange. Not thread-safe: a parameter's hooks never overlap with
    each other or with waits."""

    __slots__ = ("index", "name", "parameter", "group", "gradient", "given", "version")

    def __init__(self, index: int, name: str, parameter: torch.Tensor, group: int) -> None:
        self.index = index  # unique in the exchange
        self.name = name
        self.parameter = parameter
        self.group = group  # number of the parameter's group in the optimizer
        self.gradient: torch.Tensor | None = None  # the result of the step under way
        # p.grad when backward completed it. The program must not change it before the result is
        # there.
        self.given: torch.Tensor | None = None
        self.version = 0

    def came(self, gradients: GradientSet) -> int:
        """Notes that backward has completed the parameter's gradient. Returns the next action, like
        GradientSet.came."""
        return gradients.came(self.index)

    def submit(self, gradients: GradientSet) -> None:
        """Hands the parameter's complete gradient to the core. From now on only the core may touch
        it."""
        raise NotImplementedError

    def submit_absent(self, gradients: GradientSet) -> None:
        """Hands zeros in, because this rank computed no gradient. The parameter receives the
        result."""
        raise NotImplementedError

    def wait(self, gradients: GradientSet) -> None:
        """Waits for the result. On a device the current stream waits, not the host."""
        raise NotImplementedError

    def finish(self) -> None:
        """Makes `gradient` the result. Call it after `wait`, with gradient mode off."""
        raise NotImplementedError

    def note(self) -> None:
        """Remembers p.grad for `check_untouched`."""
        given = self.given = self.parameter.grad
        self.version = 0 if given is None else given._version

    def check_untouched(self) -> None:
        """AssertionError if p.grad was changed or replaced since `note`."""
        given = self.given
        if given is None:
            return
        if given is self.parameter.grad and given._version == self.version:
            return
        raise AssertionError(
            f"gradient {self.name} was changed after loss.backward() and before optimizer.step(), "
            "while it was on its way to the other ranks. This is prohibited as it can cause a race "
            "condition. To clip or change averaged gradients: optimizer.synchronize(), change "
            "them, then 'with optimizer.skip_synchronize(): optimizer.step()'."
        )

    def check_type(self, gradient: torch.Tensor) -> None:
        """ValueError for a gradient of integers or complex numbers."""
        if not gradient.dtype.is_floating_point:
            raise ValueError(
                f"gradient {self.name} has the element type {gradient.dtype}, expected "
                "floating-point numbers, because a mean has fractions and no imaginary part: "
                "parameter.grad = parameter.grad.real.float()"
            )

    def forget(self) -> None:
        """Drops the tensors of the step."""
        self.gradient = self.given = None


_CASTS = (FP16Compressor, BF16Compressor)  # a staging tensor of their type does their work


class GradientSlot(Slot):
    """Gradient `index` of a set of the core."""

    __slots__ = (
        "predivide", "compression", "in_place", "shape", "wire_shape", "wire_dtype",
        "wire_count", "wire", "context", "staging", "view", "sparse_dim", "place", "made_on", "copies",
    )  # fmt: skip

    def __init__(
        self,
        index: int,
        name: str,
        parameter: torch.Tensor,
        group: int,
        compression: Any,
        predivide: float,
    ) -> None:
        super().__init__(index, name, parameter, group)
        # Set if gradients are sparse and travel dense; the result becomes sparse again.
        self.sparse_dim: int | None = None
        self.predivide = predivide
        # None: the gradient travels unchanged, or the staging tensor casts it. Otherwise an object
        # with compress and decompress.
        self.compression = None if compression in (NoneCompressor, *_CASTS) else compression
        self.wire: torch.Tensor | None = None
        self.context: Any = None
        self.staging: torch.Tensor | None = None
        if not parameter.is_sparse:
            check_has_values(f"parameter {name}", parameter)
        self.shape = parameter.shape  # as the gradients of all steps must have it
        self.wire_shape, self.wire_dtype = self._wire_form(compression)
        self.wire_count = self.wire_shape.numel()
        self.place = devices.place_of(parameter)
        # The stream that made the gradient in this step. In the first step the gradient may be
        # handed in on another stream.
        self.made_on: int | None = None
        # True if only the gradient itself can make a copy necessary.
        self.in_place = self.compression is None and predivide == 1.0
        self.copies = False  # see travel_apart
        if self.wire_dtype not in DTYPES:
            raise ValueError(f"gradient {name}: element type {self.wire_dtype} is not supported")
        self.view = TensorView(tuple(self.wire_shape), DTYPES[self.wire_dtype], place=self.place)

    def travel_apart(self) -> None:
        """From now on the gradient may be under way during the next backward. On a device it is
        handed in as a copy, because a compiled CUDA graph writes its gradients to the same memory
        in every backward."""
        if self.place != HOST:
            self.copies = True
            self.in_place = False

    def _wire_form(self, compression: Any) -> tuple:
        parameter = self.parameter
        if self.compression is not None:
            # A set needs shapes before there are gradients. Compressors have no state, so zeros
            # show the shape.
            probe, _ = self.compression.compress(zero_gradient(parameter))
            return probe.shape, probe.dtype
        dtype = gradient_dtype(parameter)
        cast = compression in _CASTS and dtype.is_floating_point
        return parameter.shape, compression.dtype if cast else dtype

    def spec(self) -> GradientSpec:
        """The declaration of the gradient for the core."""
        shape, dtype = tuple(self.wire_shape), DTYPES[self.wire_dtype]
        return GradientSpec(self.name, shape, dtype, place=self.place)

    def came(self, gradients: GradientSet) -> int:
        gradient = self.parameter.grad
        assert gradient is not None
        fits = self._fits(gradient)
        if not fits:
            self._check_place(gradient)
        stream = self.made_on = None if self.place == HOST else devices.current_stream(gradient)
        if not fits or not self.in_place:
            return gradients.came(self.index)
        # The usual case: one call reports the gradient and hands it in.
        self.view.point_at(gradient.data_ptr(), gradient)
        todo = gradients.came(self.index, self.view, stream)
        if todo == c.GRADIENT_IS_IN:
            self.gradient = self.wire = gradient
            self.sparse_dim = None
            self.note()
        return todo

    def submit(self, gradients: GradientSet) -> None:
        gradient = self.parameter.grad
        assert gradient is not None
        self.sparse_dim = gradient.sparse_dim() if gradient.is_sparse else None
        if not self._fits(gradient):
            gradient = self._copyable(gradient)
        if self.copies:
            gradient = gradient.clone(memory_format=torch.contiguous_format)
        if self.predivide != 1.0:
            gradient.mul_(1.0 / self.predivide)
        if self.compression is None and self._fits(gradient):
            self.gradient = self.wire = gradient
            self.view.point_at(gradient.data_ptr(), gradient)
        else:
            self._load(gradient)
        self.note()
        self._hand_in(gradients)

    def submit_absent(self, gradients: GradientSet) -> None:
        self.parameter.grad = zero_gradient(self.parameter)
        self._load(self.parameter.grad)
        self.note()
        if self.place == HOST:
            gradients.absent(self.index, self.view)
        else:
            # The zeros, and the work that used their memory before, are queued on the current
            # stream. The result must come after both. `ready` takes a stream, `absent` does not.
            self._hand_in(gradients)

    def _hand_in(self, gradients: GradientSet) -> None:
        wire = self.wire
        assert wire is not None
        stream = None if self.place == HOST else devices.current_stream(wire)
        if self.made_on is None:
            self.made_on = stream
        gradients.ready(self.index, self.view, stream)

    def _fits(self, tensor: torch.Tensor) -> bool:
        return readable_by_address(tensor, self.wire_dtype, self.wire_count, self.place)

    def _copyable(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient for the staging tensor, which receives the result later; if nothing can be
        written to it, a copy in its place. ValueError if a copy would lose values."""
        if gradient.is_sparse:
            gradient = gradient.to_dense()
        check_has_values(f"gradient {self.name}", gradient)
        self._check_place(gradient)
        if gradient.shape != self.shape:
            raise ValueError(
                f"gradient {self.name} has shape {tuple(gradient.shape)}, expected "
                f"{tuple(self.shape)}, as the parameter had it when the DistributedOptimizer was "
                "made; after the shape of a parameter was changed, make it again on every rank: "
                "optimizer = hvd.DistributedOptimizer(optimizer, ...)"
            )
        self.check_type(gradient)
        if self.sparse_dim is None and (gradient.is_inference() or not may_be_written(gradient)):
            gradient = self.parameter.grad = plain_copy(gradient, gradient.device)
        return gradient

    def _check_place(self, gradient: torch.Tensor) -> None:
        # A gradient on any device may be copied to host memory, but not to another device.
        if self.place != HOST and devices.place_of(gradient) != self.place:
            raise ValueError(
                f"gradient {self.name} is on {gradient.device}, expected the device "
                f"cuda:{self.place.device_id}, where parameter {self.name} was when the "
                "DistributedOptimizer was made: move the model first, then make the "
                "DistributedOptimizer, on every rank"
            )

    def _load(self, gradient: torch.Tensor) -> None:
        wire = gradient
        if self.compression is not None:
            wire, self.context = self.compression.compress(gradient)
            if wire.shape != self.wire_shape or wire.dtype != self.wire_dtype:
                raise ValueError(
                    f"gradient {self.name}: the compressor gave shape {tuple(wire.shape)} of "
                    f"{wire.dtype}, expected "
                    f"{tuple(self.wire_shape)} of {self.wire_dtype} as for zeros; both must "
                    "depend on the input's shape only"
                )
        if not self._fits(wire):
            if self.staging is None:
                home = "cpu" if self.place == HOST else gradient.device
                self.staging = torch.empty(self.wire_shape, dtype=self.wire_dtype, device=home)
            self.staging.copy_(wire)
            wire = self.staging
        self.gradient = gradient
        self.wire = wire
        self.view.point_at(wire.data_ptr(), wire)

    def wait(self, gradients: GradientSet) -> None:
        wire = self.wire
        if self.place == HOST or wire is None:
            gradients.wait(self.index)
            return
        stream = devices.current_stream(wire)
        gradients.wait_stream(self.index, stream)
        # Later work of that stream comes after the result. If that stream made the gradient,
        # torch's allocator needs no note. torch also refuses notes about the memory of compiled
        # CUDA graphs (mode="reduce-overhead").
        if stream != self.made_on:
            devices.used_by_current_stream(wire)
        self.made_on = None

    def finish(self) -> None:
        gradient, wire = self.gradient, self.wire
        assert gradient is not None and wire is not None
        result = (
            wire if self.compression is None else self.compression.decompress(wire, self.context)
        )
        if result is not gradient:
            gradient.copy_(result)
        if self.predivide != 1.0:
            gradient.mul_(self.predivide)
        if self.sparse_dim is not None:
            self.gradient = gradient.to_sparse(self.sparse_dim)
        self.wire = self.context = self.view.owner = None

    def forget(self) -> None:
        super().forget()
        self.wire = self.context = self.view.owner = None
