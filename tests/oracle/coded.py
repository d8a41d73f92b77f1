"""Methods that send few bits per element, and the count sketch; all in float32 as the plugins compute.

A quantiser Q has a memory where it is biased:  x_r = e_r + g_r,  update = (1/P) sum_r Q(x_r),  e_r = x_r - Q(x_r).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from .method import Gradients, Item, Method, ascending_sum, kept_count, largest
from .random import GOLDEN, MASK, splitmix64

STREAM_ROUNDING = 4
STREAM_HASHING = 6
STREAMS_PER_STEP = 16


def words(seed: int, gradient: int, stream: int, step: int, rank: int, numel: int, first: int = 0) -> np.ndarray:
    """uint64[numel] below 2**32: the words that sdk/kernels/random_uniform.hpp defines, for elements `first` and following."""
    stream += STREAMS_PER_STEP * (step + 1)
    base = splitmix64((seed ^ splitmix64((gradient * GOLDEN + stream) & MASK)) & MASK)
    block = splitmix64(splitmix64((base + rank * GOLDEN) & MASK))
    low = np.uint64(0xFFFFFFFF)
    x = (np.arange(first, first + numel, dtype=np.uint64) + np.uint64(block & 0xFFFFFFFF)) & low
    x = ((x ^ (x >> np.uint64(16))) * np.uint64(0x7FEB352D)) & low
    x ^= np.uint64(block >> 32)
    x = ((x ^ (x >> np.uint64(15))) * np.uint64(0x846CA68B)) & low
    return x ^ (x >> np.uint64(16))


def uniform(seed: int, gradient: int, step: int, rank: int, numel: int, first: int = 0) -> torch.Tensor:
    """float32[numel] in (0, 1) for stochastic rounding."""
    drawn = words(seed, gradient, STREAM_ROUNDING, step, rank, numel, first)
    return torch.from_numpy((((drawn >> np.uint64(9)).astype(np.float64) + 0.5) / 2.0**23).astype(np.float32))


class Quantiser(Method):
    """Elements travel one by one. With `residual`, the rounding error is added to the next gradient."""

    def __init__(self, items: Sequence[Item], ranks: int, residual: bool) -> None:
        super().__init__(items, ranks)
        self.residual = self.zeros() if residual else None

    def quantise(self, x: torch.Tensor, item: Item, step: int, rank: int) -> torch.Tensor:
        """The decoded payload of x[numel]."""
        raise NotImplementedError

    def send(self, step: int, rank: int, item: Item, grad: torch.Tensor) -> torch.Tensor:
        if self.residual is None:
            return self.quantise(grad.reshape(-1), item, step, rank)
        work = self.residual[rank][item.name]
        work += grad.reshape(-1)
        sent = self.quantise(work, item, step, rank)
        work -= sent
        return sent

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        update: Gradients = {}
        for item in self.items:
            parts = [self.send(step, rank, item, grads[rank][item.name]) for rank in range(self.ranks)]
            update[item.name] = (ascending_sum(parts) / self.ranks).reshape(item.shape)
        return update

    def kept(self, rank: int) -> Gradients:
        return {} if self.residual is None else self.residual[rank]


def in_blocks(x: torch.Tensor, block: int) -> list[torch.Tensor]:
    """x in runs of `block` elements, with a shorter last run. 0: one run."""
    if x.numel() == 0:
        return []
    return list(torch.split(x, block or x.numel()))


class MaxMin(Quantiser):
    """CGX: 2**bits - 1 equal steps between the least and the greatest element of a block."""

    def __init__(
        self,
        items: Sequence[Item],
        ranks: int,
        residual: bool,
        bits: int = 4,
        block: int = 512,
        rounding: str = "stochastic",
        seed: int = 1,
    ) -> None:
        super().__init__(items, ranks, residual)
        if rounding not in ("stochastic", "nearest"):
            raise ValueError(f"rounding is {rounding!r}, expected 'stochastic' or 'nearest'")
        self.top = float(2**bits - 1)
        self.block = block
        self.stochastic = rounding == "stochastic"
        self.seed = seed

    def quantise(self, x: torch.Tensor, item: Item, step: int, rank: int) -> torch.Tensor:
        draws = torch.full_like(x, 0.5)
        if self.stochastic:
            draws = uniform(self.seed, item.index, step, item.sender(rank), x.numel(), item.first)
        sent = []
        for part, draw in zip(in_blocks(x, self.block), in_blocks(draws, self.block)):
            low, width = part.min(), (part.max() - part.min()) / self.top
            at = ((part - low) / width).clamp(max=self.top) if width > 0 else torch.zeros_like(part)
            level = at.floor() + (draw < at - at.floor())
            sent.append(low + level * width)
        return torch.cat(sent) if sent else x.clone()


def dynamic_tree() -> torch.Tensor:
    """float32[256], ascending: by decades, the middles of 2**d equal cells of [0.1, 1), both signs; 0 and 1."""
    values = [0.0, 1.0]
    for d in range(7):
        for j in range(2**d):
            middle = 10.0 ** (d - 6) * (0.1 + 0.9 * (j + 0.5) / 2**d)
            values += [middle, -middle]
    return torch.tensor(values, dtype=torch.float64).to(torch.float32).sort().values


class Int8(Quantiser):
    """Dettmers: the nearest of 256 multiples of the largest magnitude of a block; the smaller of two equally near."""

    def __init__(self, items: Sequence[Item], ranks: int, residual: bool, block: int = 2048) -> None:
        super().__init__(items, ranks, residual)
        self.block = block
        self.values = dynamic_tree()
        doubles = self.values.to(torch.float64)
        self.middles = (doubles[1:] + doubles[:-1]) / 2

    def quantise(self, x: torch.Tensor, item: Item, step: int, rank: int) -> torch.Tensor:
        sent = []
        for part in in_blocks(x, self.block):
            scale = part.abs().max()
            ratio = (part / scale if scale > 0 else torch.zeros_like(part)).to(torch.float64)
            # The exact middle belongs to the side of zero: a positive middle to the code below, a negative middle to
            # the code above.
            below = torch.searchsorted(self.middles, ratio, right=False)
            above = torch.searchsorted(self.middles, ratio, right=True)
            sent.append(self.values[torch.where(ratio < 0, above, below)] * scale)
        return torch.cat(sent) if sent else x.clone()


class Tbq(Quantiser):
    """Strom: an entry that reaches the threshold sends plus or minus the threshold."""

    def __init__(self, items: Sequence[Item], ranks: int, residual: bool, threshold: float = 0.05) -> None:
        super().__init__(items, ranks, residual)
        self.threshold = torch.tensor(threshold, dtype=torch.float32)

    def quantise(self, x: torch.Tensor, item: Item, step: int, rank: int) -> torch.Tensor:
        return torch.where(x.abs() >= self.threshold, x.sign() * self.threshold, torch.zeros_like(x))


class Inceptionn(Quantiser):
    """INCEPTIONN: 32, 16, 8 or no bits by exponent; fixed-point magnitudes are cut."""

    def __init__(self, items: Sequence[Item], ranks: int, residual: bool, bound_bits: int = 10) -> None:
        super().__init__(items, ranks, residual)
        self.bound = 2.0**-bound_bits
        self.middle = 2.0 ** -(bound_bits // 2)

    def quantise(self, x: torch.Tensor, item: Item, step: int, rank: int) -> torch.Tensor:
        y = x.abs()
        of_byte = (y * (128 / self.middle)).floor() * (self.middle / 128)
        of_half = (y * 32768).floor() / 32768
        cut = torch.where(y >= self.bound, of_byte, torch.zeros_like(y))
        cut = torch.where(y >= self.middle, of_half, cut)
        return torch.where(y >= 1, y, cut) * x.sign()


class Sketch(Method):
    """Sketched SGD (Ivkin et al., NeurIPS 2019) with a residual, a sketch for each gradient.

    S_r    = count sketch of x_r = e_r + g_r, of `rows` rows and columns_per_entry * k columns
    I      = the k entries of largest |median over rows of sum_r S_r|
    update = (1/P) sum_r x_r[I],  e_r = x_r with x_r[I] := 0
    """

    def __init__(
        self,
        items: Sequence[Item],
        ranks: int,
        density: float = 0.001,
        rows: int = 5,
        columns_per_entry: float = 25,
        seed: int = 1,
    ) -> None:
        super().__init__(items, ranks)
        self.density = density
        self.rows = rows
        self.columns_per_entry = columns_per_entry
        self.seed = seed
        self.residual = self.zeros()

    def columns(self, numel: int) -> int:
        return min(numel, math.ceil(self.columns_per_entry * kept_count(numel, self.density)))

    def is_sketched(self, numel: int) -> bool:
        """True if table and values are fewer numbers than the gradient."""
        return self.rows * self.columns(numel) + kept_count(numel, self.density) < numel

    def chosen(self, step: int, item: Item) -> torch.Tensor:
        columns = self.columns(item.numel)
        estimates = []
        for row in range(self.rows):
            drawn = words(self.seed, item.index, STREAM_HASHING, step, row, item.numel)
            at = torch.from_numpy((((drawn >> np.uint64(1)) * np.uint64(columns)) >> np.uint64(31)).astype(np.int64))
            sign = torch.from_numpy(1.0 - 2.0 * (drawn & np.uint64(1)).astype(np.float32)).to(torch.float32)
            table = torch.zeros(columns)
            for work in self.residual:
                table += torch.zeros(columns).index_add_(0, at, sign * work[item.name])
            estimates.append(sign * table[at])
        return largest(torch.stack(estimates).median(dim=0).values, kept_count(item.numel, self.density))

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        update: Gradients = {}
        for item in self.items:
            if not self.is_sketched(item.numel):
                update[item.name] = ascending_sum([g[item.name] for g in grads]) / self.ranks
                continue
            for rank in range(self.ranks):
                self.residual[rank][item.name] += grads[rank][item.name].reshape(-1)
            chosen = self.chosen(step, item)
            total = torch.zeros(item.numel)
            for work in self.residual:
                total[chosen] += work[item.name][chosen]
                work[item.name][chosen] = 0.0
            update[item.name] = (total / self.ranks).reshape(item.shape)
        return update

    def kept(self, rank: int) -> Gradients:
        return self.residual[rank]
