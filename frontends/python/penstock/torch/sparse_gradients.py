"""Sparse gradients that travel sparse: every rank gathers the rows of all ranks, indices and
values, under the parameter's name. The core's schemes do not apply to them."""

from __future__ import annotations

from typing import Callable

import torch

from penstock.common.gradient_set import GradientSet
from penstock.common.process_sets import ProcessSet
from penstock.torch.collectives.sparse import sparse_allreduce_async
from penstock.torch.gradients import Slot


class SparseSlot(Slot):
    """A parameter whose gradients are sparse.

    sparse_dim: the number of the parameter's dimensions that the indices address; 1 for an
        embedding.
    """

    __slots__ = ("op", "process_set", "sparse_dim", "_result")

    def __init__(
        self,
        index: int,
        name: str,
        parameter: torch.Tensor,
        group: int,
        op: int,
        process_set: ProcessSet,
        sparse_dim: int,
    ) -> None:
        super().__init__(index, name, parameter, group)
        self.op = op
        self.process_set = process_set
        self.sparse_dim = sparse_dim
        self._result: Callable[[], torch.Tensor] | None = None

    def submit(self, gradients: GradientSet) -> None:
        gradient = self.parameter.grad
        assert gradient is not None
        self.check_type(gradient)
        if not gradient.is_sparse:
            gradient = gradient.to_sparse(self.sparse_dim)
        self._start(gradient)

    def submit_absent(self, gradients: GradientSet) -> None:
        shape = self.parameter.shape
        indices = torch.zeros(
            (self.sparse_dim, 0), dtype=torch.int64, device=self.parameter.device
        )
        values = self.parameter.new_zeros((0, *shape[self.sparse_dim :]))
        nothing = torch.sparse_coo_tensor(indices, values, shape, check_invariants=True)
        self.parameter.grad = nothing
        self._start(nothing)

    def _start(self, gradient: torch.Tensor) -> None:
        self.note()
        self._result = sparse_allreduce_async(
            gradient.detach().coalesce(), self.name, self.op, self.process_set
        )

    def wait(self, gradients: GradientSet) -> None:
        if self._result is not None:
            self.gradient = self._result().coalesce()
            self._result = None

    def finish(self) -> None:
        pass

    def forget(self) -> None:
        super().forget()
        self._result = None

