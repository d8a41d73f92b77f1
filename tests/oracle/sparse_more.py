"""Sparse methods with drawn or agreed positions, or with positions per row or whole rows, and alternating Power-SGD.

Work of rank r is x_r = e_r + g_r, and e_r is its unsent part; without a memory e_r stays zero. COVAP: x_r = beta e_r + g_r.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .low_rank import _LowRank, orthogonalise
from .method import Gradients, Item, Method, ascending_sum, kept_count, largest
from .random import GOLDEN, MASK, STREAM_P, STREAM_Q, normals, splitmix64
from .values import checked, narrowed, resolved, take

STREAM_SELECTION = 5
STREAMS_PER_STEP = 16


def words(seed: int, gradient: int, stream: int, first: int, count: int) -> np.ndarray:
    """Words `first` to `first + count` of a stream, all below 2**32: a counter through a keyed permutation."""
    key = splitmix64(splitmix64((seed ^ splitmix64((gradient * GOLDEN + stream) & MASK)) & MASK))
    half = splitmix64(key)
    x = np.arange(first, first + count, dtype=np.uint64) + np.uint64(half & 0xFFFFFFFF)
    low = np.uint64(0xFFFFFFFF)
    x &= low
    x = ((x ^ (x >> np.uint64(16))) * np.uint64(0x7FEB352D)) & low
    x ^= np.uint64(half >> 32)
    x = ((x ^ (x >> np.uint64(15))) * np.uint64(0x846CA68B)) & low
    return x ^ (x >> np.uint64(16))


def drawn_positions(n: int, k: int, seed: int, gradient: int, step: int, first: int = 0) -> torch.Tensor:
    """One position in each of k strata of a ring of n entries. The first stratum starts at a random place. `first`: the place
    of the entries in their gradient, whose words they use."""
    stream = STREAM_SELECTION + STREAMS_PER_STEP * (step + 1)
    drawn = words(seed, gradient, stream, first, k + 1)
    start = (int(drawn[k]) * n) >> 32
    sizes = np.full(k, n // k, dtype=np.uint64)
    sizes[: n % k] += np.uint64(1)
    begins = np.cumsum(sizes) - sizes
    positions = np.uint64(start) + begins + ((drawn[:k] * sizes) >> np.uint64(32))
    return torch.from_numpy((positions % np.uint64(n)).astype(np.int64))


class _Sparse(Method):
    """Methods that choose positions. `keeps`: unsent values stay in a residual."""

    alike = False  # all ranks choose equal positions: values are summed on the way, in their narrow type
    beta = 1.0  # factor of the residual

    def __init__(
        self,
        items: Sequence[Item],
        ranks: int,
        density: float,
        keeps: bool = True,
        seed: int = 1,
        value_type: str = "fp32",
    ) -> None:
        super().__init__(items, ranks)
        self.value_type = checked(value_type)
        if self.alike and value_type in ("int8", "sign"):
            raise ValueError(f"value_type is {value_type}, whose sums do not fit into it; expected fp32, fp16 or bf16")
        self.density = density
        self.keeps = keeps
        self.seed = seed
        self.residual = self.zeros()

    def choose(self, step: int, item: Item, works: list[torch.Tensor]) -> list[torch.Tensor]:
        """Positions that each rank sends."""
        raise NotImplementedError

    def room(self, step: int, item: Item) -> int:
        """For how many entries a payload is planned, where that decides on the type of values."""
        return 0

    def scale(self, item: Item) -> float:
        del item
        return 1.0

    def type_of(self, item: Item) -> str:
        del item
        return self.value_type

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        update: Gradients = {}
        for item in self.items:
            works = [self.beta * self.residual[r][item.name] + grads[r][item.name].reshape(-1) for r in range(self.ranks)]
            total = torch.zeros(item.numel)
            if item.numel:
                for rank, positions in enumerate(self.choose(step, item, works)):
                    kind = resolved(self.type_of(item), self.room(step, item), item.numel, self.keeps)
                    total[positions] += take(works[rank], positions, kind, self.alike)
                if self.alike:
                    total = narrowed(total, self.type_of(item), summed=True)
            if self.keeps:
                for rank in range(self.ranks):
                    self.residual[rank][item.name] = works[rank]
            update[item.name] = (total * self.scale(item) / self.ranks).reshape(item.shape)
        return update

    def kept(self, rank: int) -> Gradients:
        return self.residual[rank] if self.keeps else {}


class RandomK(_Sparse):
    """Random-k (Stich et al., NeurIPS 2018): all ranks draw equal k of n positions; values times n / k if nothing is kept."""

    alike = True

    def __init__(
        self,
        items: Sequence[Item],
        ranks: int,
        keeps: bool,
        density: float = 0.01,
        unbiased: bool = True,
        seed: int = 1,
        value_type: str = "fp32",
    ) -> None:
        super().__init__(items, ranks, density, keeps, seed, value_type)
        self.unbiased = unbiased

    def choose(self, step: int, item: Item, works: list[torch.Tensor]) -> list[torch.Tensor]:
        k = kept_count(item.numel, self.density)
        return [drawn_positions(item.numel, k, self.seed, item.index, step, item.first)] * len(works)

    def scale(self, item: Item) -> float:
        if self.keeps or not self.unbiased or not item.numel:
            return 1.0
        return item.numel / kept_count(item.numel, self.density)


class ChunkTopK(_Sparse):
    """The chunks whose L1 norms, summed over ranks, are largest; ties to the lower chunk."""

    alike = True

    def __init__(
        self,
        items: Sequence[Item],
        ranks: int,
        keeps: bool,
        density: float = 0.01,
        chunk: int = 256,
        value_type: str = "fp32",
    ) -> None:
        super().__init__(items, ranks, density, keeps, value_type=value_type)
        self.chunk = chunk

    def choose(self, step: int, item: Item, works: list[torch.Tensor]) -> list[torch.Tensor]:
        chunks = -(-item.numel // self.chunk)
        norms = ascending_sum(
            [
                torch.stack([part.double().abs().sum().float() for part in work.split(self.chunk)])
                for work in works
            ]
        )
        chosen = torch.zeros(chunks, dtype=torch.bool)
        chosen[largest(norms, kept_count(chunks, self.density))] = True
        positions = torch.nonzero(chosen.repeat_interleave(self.chunk)[: item.numel]).flatten()
        return [positions] * len(works)


class ArcTopK(_Sparse):
    """ARC-Top-K (Chen et al., 2025): the k rows of a matrix with the longest rows of P = sum_r t(X_r V); ties to the lower row.

    V [cols, rank] has normal numbers, equal on all ranks and new in every step; t() rounds to the type of the values. Vectors,
    and matrices whose projection and rows are not fewer numbers than the matrix, are sent whole in float32.
    """

    alike = True

    def __init__(
        self,
        items: Sequence[Item],
        ranks: int,
        keeps: bool,
        density: float = 0.08,
        rank: int = 4,
        seed: int = 1,
        value_type: str = "fp32",
    ) -> None:
        super().__init__(items, ranks, density, keeps, seed, value_type)
        self.rank = rank

    def whole(self, item: Item) -> bool:
        return len(item.shape) < 2 or item.rows * self.rank + kept_count(item.rows, self.density) * item.cols >= item.numel

    def type_of(self, item: Item) -> str:
        return "fp32" if self.whole(item) else self.value_type

    def choose(self, step: int, item: Item, works: list[torch.Tensor]) -> list[torch.Tensor]:
        if self.whole(item):
            return [torch.arange(item.numel)] * len(works)
        drawn = normals(self.seed, item.index, STREAM_Q + STREAMS_PER_STEP * (step + 1), item.cols, self.rank).double()
        own = [(work.double().reshape(item.rows, item.cols) @ drawn).float() for work in works]
        total = narrowed(ascending_sum([narrowed(p, self.value_type, True) for p in own]), self.value_type, True)
        rows = largest(total.double().norm(dim=1).float(), kept_count(item.rows, self.density))
        return [(rows.reshape(-1, 1) * item.cols + torch.arange(item.cols)).flatten()] * len(works)


class Covap(_Sparse):
    """COVAP (arXiv:2311.04499): slice (step + index) mod (number of slices) of ceil(n / interval) neighbours."""

    alike = True

    def __init__(self, items: Sequence[Item], ranks: int, keeps: bool, interval: int = 4, beta: float = 1.0) -> None:
        super().__init__(items, ranks, 1.0, keeps)
        self.interval, self.beta = interval, beta

    def choose(self, step: int, item: Item, works: list[torch.Tensor]) -> list[torch.Tensor]:
        slices = torch.arange(item.numel).split(-(-item.numel // self.interval))
        return [slices[(step + item.index) % len(slices)]] * len(works)


@dataclass
class _Reuse:
    """The memory of ADTopk's threshold mode for one gradient on one rank."""

    threshold: float = 0.0
    tolerance: float = 0.0
    interval: int = 0
    age: int = 0
    settled: bool = False

    def found(self, smallest: float) -> None:
        self.threshold, self.tolerance, self.age = smallest, smallest / 10, 0

    def adapt(self, smallest: float) -> None:
        change, shortest = abs(self.threshold - smallest), min(5, self.interval)
        if change < self.tolerance:
            self.interval += 2 if change < self.tolerance / 2 else 1
            self.settled = True
        elif change > self.tolerance:
            self.interval = max(self.interval - (2 if change > 2 * self.tolerance else 1), shortest)
            self.settled = False
        self.found(smallest)


class AdTopK(_Sparse):
    """ADTopk (HPDC 2024): the largest entries along axis 1 for every index of the other axes.

    plain: in every step. interleaved: in even steps; in odd steps the largest of the whole. threshold: like interleaved,
    but in odd steps after the warm-up all entries that reach the last exact threshold, while this threshold is valid.
    """

    def __init__(
        self,
        items: Sequence[Item],
        ranks: int,
        keeps: bool,
        density: float = 0.01,
        mode: str = "interleaved",
        warm_up_steps: int = 15,
        reuse_steps: int = 5,
        total_steps: int = 0,
        value_type: str = "fp32",
    ) -> None:
        super().__init__(items, ranks, density, keeps, value_type=value_type)
        self.mode = mode
        self.warm_up_steps = warm_up_steps
        self.reuse_steps = reuse_steps
        self.total_steps = total_steps
        self.reuse = [{item.name: _Reuse() for item in self.items} for _ in range(ranks)]

    def count(self, n: int) -> int:
        """max(1, floor(density * n))."""
        return min(n, max(1, int(self.density * n + 1e-9)))

    def room(self, step: int, item: Item) -> int:
        length = item.shape[1] if len(item.shape) > 1 else item.numel
        by_axis = item.numel // length * self.count(length) if length else 0
        k = self.count(item.numel)
        if self.mode == "plain" or step % 2 == 0:
            return by_axis
        if self.mode == "interleaved":
            return k
        return max(min(item.numel, k + k // 10), by_axis if self.total_steps > 0 else 0)

    def along_axis(self, item: Item, work: torch.Tensor) -> torch.Tensor:
        shape = (item.shape[0], item.shape[1], -1) if len(item.shape) > 1 else (1, item.numel, 1)
        lanes = work.reshape(shape).movedim(1, 2)  # [blocks, lanes, length]
        positions = torch.arange(item.numel).reshape(shape).movedim(1, 2)
        k = self.count(lanes.shape[2])
        # A stable descending sort gives ties to the lower index.
        order = lanes.abs().sort(dim=2, descending=True, stable=True).indices[:, :, :k]
        return positions.gather(2, order).reshape(-1).sort().values

    def by_threshold(self, step: int, item: Item, work: torch.Tensor, reuse: _Reuse) -> torch.Tensor:
        late = self.total_steps > 0 and step > self.total_steps - self.total_steps // 4
        if late and reuse.settled:
            return self.along_axis(item, work)
        k = self.count(item.numel)
        reuse.age += 2
        fresh = step < self.warm_up_steps or reuse.interval == 0
        if not fresh and reuse.age < reuse.interval:
            passed = int(((work.abs() >= reuse.threshold) & (work != 0)).sum())
            count = min(passed, k + k // 10, item.numel)
            if 10 * count >= 9 * k:
                return largest(work, count)
        due = not fresh and reuse.age >= reuse.interval
        chosen = largest(work, k)
        smallest = float(work[chosen].abs().min())
        if fresh:
            reuse.interval = self.reuse_steps
        reuse.adapt(smallest) if due else reuse.found(smallest)
        return chosen

    def choose(self, step: int, item: Item, works: list[torch.Tensor]) -> list[torch.Tensor]:
        if self.mode == "plain" or step % 2 == 0:
            return [self.along_axis(item, work) for work in works]
        if self.mode == "interleaved":
            return [largest(work, self.count(item.numel)) for work in works]
        return [self.by_threshold(step, item, work, self.reuse[r][item.name]) for r, work in enumerate(works)]


class AlternatingPowerSgd(_LowRank):
    """Power-SGD as in the package of its authors: one factor per step, first the right factor.

        even steps:  P = orth(P);  Q_r = t(X_r^T P);  Q = t(sum_r Q_r);  E_r = X_r - P Q_r^T
        odd steps:   Q = orth(Q);  P_r = t(X_r Q);    P = t(sum_r P_r);  E_r = X_r - P_r Q^T
        update = (1/P) P Q^T

    A step sends half of both factors on average, so half of their size counts for the rate.
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
        super().__init__(items, ranks, rank, minimum_compression_rate / 2, seed, value_type)
        self.input = {i.name: normals(seed, i.index, STREAM_P, i.rows, self.width(i)) for i in self.factored}

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        update = self.dense_part(grads)
        for item in self.factored:
            known = orthogonalise(self.input[item.name])
            x = self.compensated(item, grads)
            own = [self.rounded(x_r.T @ known if step % 2 == 0 else x_r @ known) for x_r in x]
            self.input[item.name] = total = self.total(own)

            def product(sent: torch.Tensor, known: torch.Tensor = known) -> torch.Tensor:
                return known @ sent.T if step % 2 == 0 else sent @ known.T

            for rank in range(self.ranks):
                self.error[rank][item.name] = x[rank] - product(own[rank])
            update[item.name] = (product(total) / self.ranks).reshape(item.shape)
        return update
