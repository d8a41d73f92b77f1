"""Low-rank schemes: Power-SGD (Vogels et al., NeurIPS 2019) and ACP-SGD (Zhang et al., ICDCS 2023).

M is the gradient as an n-by-m matrix, r = min(rank, n, m), orth() Gram-Schmidt. Here orth() works in float64. Another
routine differs by a few units of 1e-7 times the condition of its input, so the runtime agrees up to rounding, not to the
bit. A factor travels as float32, or rounded to 16 bits: t() rounds. The kept values of a rank follow from its rounded
factor. The sum is rounded once more, and no memory keeps this rounding error. Tensors that are not factored are sent dense,
in this bucket, and nothing of them is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from .method import Gradients, Item, Method, ascending_sum
from .random import STREAM_Q, normals
from .values import checked, narrowed


def orthogonalise(factor: torch.Tensor) -> torch.Tensor:
    """Orthonormal columns with the span of the columns of `factor` [n, r], by Gram-Schmidt done twice in float64.

        a_j := a_j - sum_(k<j) q_k (q_k . a_j), twice;    q_j = a_j / |a_j|

    A column that depends on earlier columns becomes zero: its rest after the projection is below 1e-7 of the longest
    column. The QR of a library would put an arbitrary direction there, and remove it from the later columns.
    """
    columns = factor.to(torch.float64)
    longest = float(columns.norm(dim=0).max()) if factor.numel() else 0.0
    q = torch.zeros_like(columns)
    for j in range(columns.shape[1]):
        rest = columns[:, j].clone()
        for _ in range(2):
            rest -= q[:, :j] @ (q[:, :j].T @ rest)
        length = float(rest.norm())
        if length > 1e-7 * longest:
            q[:, j] = rest / length
    return q.to(torch.float32)


class _LowRank(Method):
    """Matrices, their error E_r and factors. The other gradients are averaged densely."""

    def __init__(
        self, items: Sequence[Item], ranks: int, rank: int, minimum_compression_rate: float, seed: int, value_type: str
    ) -> None:
        super().__init__(items, ranks)
        self.value_type = checked(value_type)
        if value_type in ("int8", "sign"):
            raise ValueError(f"value_type is {value_type}, whose sums do not fit into it; expected fp32, fp16 or bf16")
        self.max_rank = rank
        self.factored = [item for item in self.items if self._worth(item, minimum_compression_rate)]
        names = {item.name for item in self.factored}
        self.dense = [item for item in self.items if item.name not in names]
        self.error = [{i.name: torch.zeros(i.rows, i.cols) for i in self.factored} for _ in range(ranks)]
        self.q = {i.name: normals(seed, i.index, STREAM_Q, i.cols, self.width(i)) for i in self.factored}

    def width(self, item: Item) -> int:
        return min(self.max_rank, item.rows, item.cols)

    def _worth(self, item: Item, rate: float) -> bool:
        """Factored if the gradient has at least two dimensions and (n + m) r * rate < n m."""
        if len(item.shape) < 2 or item.numel == 0:
            return False
        return (item.rows + item.cols) * self.width(item) * rate < item.numel

    def compensated(self, item: Item, grads: Sequence[Mapping[str, torch.Tensor]]) -> list[torch.Tensor]:
        """X_r = E_r + M_r of every rank."""
        return [
            self.error[rank][item.name] + grads[rank][item.name].reshape(item.rows, item.cols)
            for rank in range(self.ranks)
        ]

    def rounded(self, factor: torch.Tensor) -> torch.Tensor:
        """t() of a factor that a rank sends."""
        return narrowed(factor, self.value_type)

    def total(self, own: Sequence[torch.Tensor]) -> torch.Tensor:
        """t() of the sum of all ranks' factors."""
        return narrowed(ascending_sum(own), self.value_type)

    def dense_part(self, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        return {item.name: ascending_sum([g[item.name] for g in grads]) / self.ranks for item in self.dense}

    def kept(self, rank: int) -> Gradients:
        return self.error[rank]


class PowerSgd(_LowRank):
    """Two dependent rounds per step, warm start from the summed Q of the last step.

        P    = orth(t(sum_r t(X_r orth(Q))))
        Q_r  = t(X_r^T P);   Q = t(sum_r Q_r)
        E_r  = X_r - P Q_r^T         (the local factor: the values of this rank's payload)
        update = (1/P) P Q^T
    """

    def __init__(
        self,
        items: Sequence[Item],
        ranks: int,
        rank: int = 4,
        minimum_compression_rate: float = 2.0,
        seed: int = 1,
        value_type: str = "fp32",
    ) -> None:
        super().__init__(items, ranks, rank, minimum_compression_rate, seed, value_type)

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        update = self.dense_part(grads)
        for item in self.factored:
            x = self.compensated(item, grads)
            q = orthogonalise(self.q[item.name])
            p = orthogonalise(self.total([self.rounded(x_r @ q) for x_r in x]))
            q_own = [self.rounded(x_r.T @ p) for x_r in x]
            for rank in range(self.ranks):
                self.error[rank][item.name] = x[rank] - p @ q_own[rank].T
            self.q[item.name] = self.total(q_own)
            update[item.name] = (p @ self.q[item.name].T / self.ranks).reshape(item.shape)
        return update


class AcpSgd(_LowRank):
    """One round per step: the two factors take turns.

        even steps:  Q = orth(Q);  P_r = t(X_r Q);    P = t(sum_r P_r);  E_r = X_r - P_r Q^T
        odd steps:   P = orth(P);  Q_r = t(X_r^T P);  Q = t(sum_r Q_r);  E_r = X_r - P Q_r^T
        update = (1/P) P Q^T
    """

    def __init__(
        self,
        items: Sequence[Item],
        ranks: int,
        rank: int = 4,
        minimum_compression_rate: float = 0.0,
        seed: int = 1,
        value_type: str = "fp32",
    ) -> None:
        super().__init__(items, ranks, rank, minimum_compression_rate, seed, value_type)
        self.p: Gradients = {}

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        update = self.dense_part(grads)
        for item in self.factored:
            x = self.compensated(item, grads)
            name = item.name
            if step % 2 == 0:
                self.q[name] = orthogonalise(self.q[name])
                own = [self.rounded(x_r @ self.q[name]) for x_r in x]
                products = [p_r @ self.q[name].T for p_r in own]
                self.p[name] = self.total(own)
            else:
                self.p[name] = orthogonalise(self.p[name])
                own = [self.rounded(x_r.T @ self.p[name]) for x_r in x]
                products = [self.p[name] @ q_r.T for q_r in own]
                self.q[name] = self.total(own)
            for rank in range(self.ranks):
                self.error[rank][name] = x[rank] - products[rank]
            update[name] = (self.p[name] @ self.q[name].T / self.ranks).reshape(item.shape)
        return update
