"""Methods that send the largest numbers of every block of 64 x 64: block top-k (SparseLoCo) and DeMo.

    W_r = beta W_r + g_r;  S_r = the largest of each block, as their values travel;  W_r = W_r - S_r
    block top-k:  update = (1 / P) sum_r S_r
    DeMo:         the same with cosine coefficients; the mean of one is over the ranks that sent it; update = sign of that mean
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from .method import Gradients, Item, Method, largest
from .values import narrowed

SIDE, SIZE = 64, 4096
LONGEST_VECTOR = 65536  # cut into runs of 64, of which k each are sent


def is_vector(item: Item) -> bool:
    return max(1, item.numel) <= LONGEST_VECTOR and (len(item.shape) < 2 or (len(item.shape) == 2 and item.cols == 1))


def blocks_of(item: Item) -> list[torch.Tensor]:
    """Positions of each block's elements, row by row; a run has one row."""
    if len(item.shape) == 2 and item.cols > 1:
        grid = torch.arange(item.numel).reshape(item.shape)
        return [block for rows in grid.split(SIDE) for block in rows.split(SIDE, dim=1)]
    run = SIDE if is_vector(item) else SIZE
    return [part.reshape(1, -1) for part in torch.arange(item.numel).split(run)] if item.numel else []


def kept_of(item: Item, size: int, k: int) -> int:
    """The number of elements that are sent of a block of this size."""
    return min(size, k) if is_vector(item) else max(1, math.floor(size * k / SIZE + 0.5))


def cosines(n: int) -> torch.Tensor:
    """F[k][j] of the orthonormal DCT-II of n numbers."""
    k, j = torch.arange(n, dtype=torch.float64).reshape(-1, 1), torch.arange(n, dtype=torch.float64)
    matrix = math.sqrt(2 / n) * torch.cos(math.pi * (2 * j + 1) * k / (2 * n))
    matrix[0] *= math.sqrt(0.5)
    matrix[matrix.abs() < 1e-12] = 0  # cosines of a right angle
    return matrix


def transformed(block: torch.Tensor, back: bool = False) -> torch.Tensor:
    """Coefficients of a block of float64, or the block of its coefficients. A run is cut into rows of 64."""
    if block.shape[0] == 1:
        matrices = [(row, cosines(row.shape[1])) for row in block.split(SIDE, dim=1)]
        return torch.cat([row @ (matrix if back else matrix.T) for row, matrix in matrices], dim=1)
    left, right = cosines(block.shape[0]), cosines(block.shape[1])
    return left.T @ block @ right if back else left @ block @ right.T


def four_numbers(values: torch.Tensor) -> torch.Tensor:
    """SparseLoCo's quantiser over all values v of a gradient: s + the mean of v - s in each of four bins."""
    exact = values.double()
    mean = exact.mean()
    centred = exact - mean
    step = 6 * float(centred.std()) / 4 if len(values) > 1 else 0.0
    codes = (centred / (step or 1.0) + 2).round().clamp(0, 3)
    sent = torch.empty_like(exact)
    for code in codes.unique():
        sent[codes == code] = mean + centred[codes == code].mean()
    return sent.float()


class BlockTopK(Method):
    """Block top-k with a residual, or without any memory. `mean`: over all ranks, or over the ranks that sent an element."""

    def __init__(
        self,
        items: Sequence[Item],
        ranks: int,
        keeps: bool = True,
        beta: float = 1.0,
        k: int = 64,
        value_type: str = "fp16",
        mean: str = "ranks",
    ) -> None:
        super().__init__(items, ranks)
        if value_type not in ("fp32", "fp16", "int2"):
            raise ValueError(f"value_type is {value_type!r}, this oracle simulates fp32, fp16 and int2")
        self.over_senders = mean == "senders"
        self.keeps, self.beta, self.k, self.value_type = keeps, beta, k, value_type
        self.residual = self.zeros()

    def numbers(self, block: torch.Tensor) -> torch.Tensor:
        """What is chosen among, for a block of work."""
        return block

    def chosen(self, item: Item, blocks: list[torch.Tensor], work: torch.Tensor) -> list[torch.Tensor]:
        """What a rank sends of each block's numbers, zeros elsewhere."""
        numbers = [self.numbers(work[block]).reshape(-1) for block in blocks]
        places = [largest(of, kept_of(item, of.numel(), self.k)) for of in numbers]
        values = torch.cat([of[at] for of, at in zip(numbers, places)])
        values = four_numbers(values) if self.value_type == "int2" else narrowed(values.float(), self.value_type)
        sent = [torch.zeros(of.numel()) for of in numbers]
        for of, at, part in zip(sent, places, values.split([len(at) for at in places])):
            of[at] = part
        return [of.reshape(block.shape) for of, block in zip(sent, blocks)]

    def elements(self, numbers: torch.Tensor) -> torch.Tensor:
        """The elements of a block that its numbers stand for."""
        return numbers

    def result(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """A block of the update, from what each rank sent of it."""
        total = parts[0].clone()
        for part in parts[1:]:
            total += part
        if not self.over_senders:
            return total / self.ranks
        return total / sum((part != 0).float() for part in parts).clamp(min=1)

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        update: Gradients = {}
        for item in self.items:
            blocks = blocks_of(item)
            sent = []
            for rank in range(self.ranks):
                work = grads[rank][item.name].reshape(-1).clone()
                if self.keeps:
                    work += self.beta * self.residual[rank][item.name]
                sent.append(self.chosen(item, blocks, work) if blocks else [])
                for block, part in zip(blocks, sent[rank]):
                    work[block] -= self.elements(part)
                if self.keeps:
                    self.residual[rank][item.name] = work
            result = torch.zeros(item.numel)
            for number, block in enumerate(blocks):
                result[block] = self.result([of_rank[number] for of_rank in sent])
            update[item.name] = result.reshape(item.shape)
        return update

    def kept(self, rank: int) -> Gradients:
        return self.residual[rank] if self.keeps else {}


class Demo(BlockTopK):
    """DeMo: the same in the domain of cosines."""

    def __init__(
        self,
        items: Sequence[Item],
        ranks: int,
        keeps: bool = True,
        beta: float = 1.0,
        k: int = 32,
        value_type: str = "fp32",
        sign: bool = True,
    ) -> None:
        super().__init__(items, ranks, keeps, beta, k, value_type)
        self.sign = sign

    def numbers(self, block: torch.Tensor) -> torch.Tensor:
        return transformed(block.double()).float()

    def elements(self, numbers: torch.Tensor) -> torch.Tensor:
        return transformed(numbers.double(), back=True).float()

    def result(self, parts: list[torch.Tensor]) -> torch.Tensor:
        senders = sum((part != 0).float() for part in parts)
        mean = self.elements(sum(parts) / senders.clamp(min=1))
        return mean.sign() if self.sign else mean
