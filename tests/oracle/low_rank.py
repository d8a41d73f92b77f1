"""Low-rank schemes: Power-SGD (Vogels et al., NeurIPS 2019) and ACP-SGD (Zhang et al., ICDCS 2023).

M is the gradient as an n-by-m matrix, r = min(rank, n, m), orth() Gram-Schmidt, here in float64. Another routine
for orth() differs by a few units of 1e-7 times the condition of its input. So the runtime agrees to rounding, not
to the bit.
Tensors that are not factored travel dense in the bucket of the factors, without a residual.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from .method import Gradients, Item, Method, ascending_sum
from .random import STREAM_Q, normals


def orthogonalise(factor: torch.Tensor) -> torch.Tensor:
    """Orthonormal columns with the span of the columns of `factor` [n, r], by Gram-Schmidt done twice in float64.

        a_j := a_j - sum_(k<j) q_k (q_k . a_j), twice;    q_j = a_j / |a_j|

    A column that depends on earlier columns becomes zero: after the projection it is below 1e-7 of the longest
    column. The QR of a library would put an arbitrary direction there, and remove that direction from later
    columns.
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
        self, items: Sequence[Item], ranks: int, rank: int, minimum_compression_rate: float, seed: int
    ) -> None:
        super().__init__(items, ranks)
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

    def dense_part(self, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        return {item.name: ascending_sum([g[item.name] for g in grads]) / self.ranks for item in self.dense}

    def kept(self, rank: int) -> Gradients:
        return self.error[rank]


class PowerSgd(_LowRank):
    """Two dependent rounds per step, warm start from the summed Q of the last step.

        P    = orth(sum_r X_r orth(Q))
        Q_r  = X_r^T P;   Q = sum_r Q_r
        E_r  = X_r - P Q_r^T         (P Q_r^T, the contribution of this rank, leaves its residual)
        update = (1/P) P Q^T
    """

    def __init__(
        self, items: Sequence[Item], ranks: int, rank: int, minimum_compression_rate: float = 2.0, seed: int = 1
    ) -> None:
        super().__init__(items, ranks, rank, minimum_compression_rate, seed)

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        update = self.dense_part(grads)
        for item in self.factored:
            x = self.compensated(item, grads)
            q = orthogonalise(self.q[item.name])
            p = orthogonalise(ascending_sum([x_r @ q for x_r in x]))
            q_own = [x_r.T @ p for x_r in x]
            for rank in range(self.ranks):
                self.error[rank][item.name] = x[rank] - p @ q_own[rank].T
            self.q[item.name] = ascending_sum(q_own)
            update[item.name] = (p @ self.q[item.name].T / self.ranks).reshape(item.shape)
        return update


class AcpSgd(_LowRank):
    """One round per step: the two factors take turns.

        even steps:  Q = orth(Q);  P_r = X_r Q;    P = sum_r P_r;  E_r = X_r - P_r Q^T
        odd steps:   P = orth(P);  Q_r = X_r^T P;  Q = sum_r Q_r;  E_r = X_r - P Q_r^T
        update = (1/P) P Q^T
    """

    def __init__(
        self, items: Sequence[Item], ranks: int, rank: int, minimum_compression_rate: float = 0.0, seed: int = 1
    ) -> None:
        super().__init__(items, ranks, rank, minimum_compression_rate, seed)
        self.p: Gradients = {}

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        update = self.dense_part(grads)
        for item in self.factored:
            x = self.compensated(item, grads)
            name = item.name
            if step % 2 == 0:
                self.q[name] = orthogonalise(self.q[name])
                own = [x_r @ self.q[name] for x_r in x]
                products = [p_r @ self.q[name].T for p_r in own]
                self.p[name] = ascending_sum(own)
            else:
                self.p[name] = orthogonalise(self.p[name])
                own = [x_r.T @ self.p[name] for x_r in x]
                products = [self.p[name] @ q_r.T for q_r in own]
                self.q[name] = ascending_sum(own)
            for rank in range(self.ranks):
                self.error[rank][name] = x[rank] - products[rank]
            update[name] = (self.p[name] @ self.q[name].T / self.ranks).reshape(item.shape)
        return update
