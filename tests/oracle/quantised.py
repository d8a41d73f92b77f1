"""Quantising methods with equal steps, signs and powers of two: the values that a rank sends of its gradient.

Each `send` function takes the flat values to send and a Draw, and returns the decoded values that arrive. The Quantiser
around it has the residual, if there is one. Random numbers are equal to the plugins' numbers, so runs agree draw by draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .coded import STREAM_ROUNDING, Quantiser, words
from .method import Gradients, Item, Method


@dataclass(frozen=True)
class Draw:
    """The source of random words for one gradient in one step on one rank."""

    seed: int
    gradient: int
    step: int
    rank: int
    first: int = 0  # element of the gradient

    def words(self, count: int) -> torch.Tensor:
        """int64[count] below 2**32, the words of stochastic rounding of elements `first` and following."""
        drawn = words(self.seed, self.gradient, STREAM_ROUNDING, self.step, self.rank, count, self.first)
        return torch.from_numpy(drawn.astype(np.int64))

    def uniform(self, count: int) -> torch.Tensor:
        """float64[count] in (0, 1)."""
        return (self.words(count).double() + 0.5) / 2.0**32


Send = Callable[[torch.Tensor, Draw], torch.Tensor]  # flat float32 -> the sent values, decoded


class Quantised(Quantiser):
    """The mean over ranks of the results of `send` for each gradient, with or without error feedback."""

    def __init__(self, items: Sequence[Item], ranks: int, residual: bool, send: Send, seed: int = 1) -> None:
        super().__init__(items, ranks, residual)
        self.send_flat = send
        self.seed = seed

    def quantise(self, x: torch.Tensor, item: Item, step: int, rank: int) -> torch.Tensor:
        return self.send_flat(x, Draw(self.seed, item.index, step, item.sender(rank), item.first))


class Signum(Method):
    """m_r = beta m_r + (1 - beta) g_r; update = sign(sum_r sign(m_r)). Zeros do not vote, a tie is 0."""

    def __init__(self, items: Sequence[Item], ranks: int, momentum: float = 0.9) -> None:
        super().__init__(items, ranks)
        self.momentum = momentum
        self.average = self.zeros()

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        update: Gradients = {}
        for item in self.items:
            votes = torch.zeros(item.numel)
            for rank in range(self.ranks):
                old = self.average[rank][item.name]
                new = self.momentum * old + (1.0 - self.momentum) * grads[rank][item.name].reshape(-1)
                self.average[rank][item.name] = new
                votes += new.sign()
            update[item.name] = votes.sign().reshape(item.shape)
        return update


def runs(x: torch.Tensor, length: int) -> list[torch.Tensor]:
    """x cut into runs of `length`, the last one shorter; 0: one run."""
    return list(torch.split(x, length if length > 0 else max(1, x.numel())))


def ef_sign(x: torch.Tensor, draw: Draw) -> torch.Tensor:
    """|x|_1 / n * sign(x)."""
    del draw
    return x.double().abs().mean().float() * x.sign()


def one_bit(bucket: int = 0) -> Send:
    """The mean of the positive elements and the mean of the negative elements of each bucket; zeros are in neither class."""

    def of_run(x: torch.Tensor) -> torch.Tensor:
        sent = torch.zeros_like(x)
        for members in (x > 0, x < 0):
            if bool(members.any()):
                sent[members] = x[members].double().mean().float()
        return sent

    return lambda x, draw: torch.cat([of_run(run) for run in runs(x, bucket)])


def qsgd(bits: int = 4, bucket: int = 512, norm: str = "l2") -> Send:
    """sign(x) * floor(|x| / step + u) * step with step = norm / s and s = 2^(bits-1) - 1; u from 16 bits."""
    levels = 2 ** (bits - 1) - 1

    def send(x: torch.Tensor, draw: Draw) -> torch.Tensor:
        chance = (draw.words(x.numel()) >> 16).double()
        sent = []
        for run, u in zip(runs(x, bucket), runs(chance, bucket)):
            magnitude = run.double().abs()
            reach = magnitude.square().sum().sqrt() if norm == "l2" else magnitude.max()
            step = float(reach / levels)
            if step == 0.0:
                sent.append(torch.zeros_like(run))
                continue
            fixed = torch.floor(magnitude / step * 65536.0 + 0.5)
            level = torch.floor((fixed + u) / 65536.0).clamp(max=levels)
            sent.append((level * step).float() * run.sign())
        return torch.cat(sent)

    return send


def tern_grad(clip: float = 2.5) -> Send:
    """sign(x) * s with probability min(|x| / s, 1), s = min(max |x|, clip * root of the mean square)."""

    def send(x: torch.Tensor, draw: Draw) -> torch.Tensor:
        magnitude = x.double().abs()
        scale = magnitude.max()
        if clip > 0.0:
            scale = torch.minimum(scale, clip * magnitude.square().mean().sqrt())
        if float(scale) == 0.0:
            return torch.zeros_like(x)
        return torch.where(draw.uniform(x.numel()) < magnitude / scale, scale.float() * x.sign(), torch.zeros_like(x))

    return send


def natural(x: torch.Tensor, draw: Draw) -> torch.Tensor:
    """|x| = 2^e (1 + m) becomes 2^(e+1) if m and 23 random bits add up to 1, else 2^e. Numbers that are not normal become 0."""
    mantissa, exponent = torch.frexp(x.double().abs())  # x = mantissa * 2^exponent, mantissa in [1/2, 1)
    up = (2.0 * mantissa - 1.0) * 2.0**23 + (draw.words(x.numel()) >> 9).double() >= 2.0**23
    power = torch.ldexp(torch.ones_like(mantissa), exponent - 1 + up.int())
    return torch.where(x.abs() < 2.0**-126, torch.zeros_like(x), power.float() * x.sign())


# For a 16-bit type: bits of the fraction, and the exponent of the smallest normal number.
_FORMATS = {torch.float16: (10, -14), torch.bfloat16: (7, -126)}


def cast(dtype: torch.dtype, rounding: str = "nearest") -> Send:
    """fp16 and bf16. Stochastic: |x| = (k + f) * unit with an integer k and 0 <= f < 1 becomes (k + 1) * unit if f + u >= 1,
    else k * unit. u has the upper bits of the word: as many bits as float32 has behind the last bit of the type, or 31
    for float16 below its smallest normal number, where f is cut to 31 bits. Beyond the largest number: as nearest."""
    if rounding not in ("nearest", "stochastic"):
        raise ValueError(f"rounding is {rounding!r}, expected 'nearest' or 'stochastic'")
    fraction, smallest = _FORMATS[dtype]

    def send(x: torch.Tensor, draw: Draw) -> torch.Tensor:
        nearest = x.to(dtype).float()
        if rounding == "nearest":
            return nearest
        fits = x.abs() <= torch.finfo(dtype).max
        a = torch.where(fits, x.abs(), 0.0).double().numpy()
        words = draw.words(x.numel()).numpy()
        exponent = np.frexp(a)[1] - 1
        bits = np.where((exponent < smallest) & (dtype == torch.float16), 31, 23 - fraction)
        unit = np.ldexp(1.0, np.maximum(exponent, smallest) - fraction)
        k = np.floor(a / unit)
        f = np.floor((a / unit - k) * 2.0**bits)
        up = f + np.floor(words / 2.0 ** (32 - bits)) >= 2.0**bits
        sent = torch.from_numpy(np.copysign((k + up) * unit, x.double().numpy())).float()
        return torch.where(fits, sent, nearest)

    return send
