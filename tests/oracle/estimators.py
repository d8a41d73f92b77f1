"""How many entries the published threshold estimators select, as a multiple of the wanted number, beside ours.

    python -m tests.oracle.estimators [DENSITY ...]     0.01 and 0.001 unless said

Independent entries, 2^16 of them. Originals: the formulas and correction loops of the authors' or the benchmarks' releases, written down anew, in their
first step. Ours: the median and the range over steps 6 to 12 with a residual and fresh gradients in every step.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from statistics import NormalDist, median

import torch

from .method import Item, kept_count
from .threshold import GaussianK, RedSync, Sidco, Steered

NUMEL = 1 << 16


def draws(name: str, generator: torch.Generator) -> torch.Tensor:
    """Independent entries; sparse: Laplace with nine of ten exactly zero."""
    normal = torch.randn(NUMEL, generator=generator)
    uniform = torch.rand(NUMEL, generator=generator).clamp(min=1e-7)
    laplace = -uniform.log() * normal.sign()
    if name == "normal":
        return normal
    if name == "Laplace":
        return laplace
    if name == "Student-t 3":
        return normal / (torch.randn(3, NUMEL, generator=generator).square().sum(0) / 3).sqrt()
    return laplace * (torch.rand(NUMEL, generator=generator) < 0.1)


def gaussian_k(x: torch.Tensor, density: float, low: float, high: float, down: float, up: float, rounds: int) -> int:
    """t = mu + z sigma, then up to `rounds` corrections; the mask that was evaluated last goes."""
    k = kept_count(x.numel(), density)
    threshold = float(x.mean() + NormalDist().inv_cdf(1 - density / 2) * x.std())
    count = 0
    for _ in range(rounds):
        count = int((x.abs() > threshold).sum())
        if count > high * k:
            threshold *= up
        elif count < low * k:
            threshold *= down
        else:
            break
    return count


def red_sync(x: torch.Tensor, density: float) -> int:
    """Bisection until the interval is 0.2 or less, or between k and 2 k pass."""
    k = kept_count(x.numel(), density)
    magnitude = x.abs()
    mean, largest = float(magnitude.mean()), float(magnitude.max())
    low, high, count = 0.0, 1.0, 0
    while high - low > 0.2:
        middle = (low + high) / 2
        count = int((magnitude > mean + middle * (largest - mean)).sum())
        if k < count < 2 * k:
            break
        low, high = (low, middle) if count < k / 2 else (middle, high)
    return count


def red_sync_trimmed(x: torch.Tensor, density: float) -> int:
    """From 0.8 down in steps of 0.2 until k pass, and all of them go: the final selection is left out."""
    k = kept_count(x.numel(), density)
    magnitude = x.abs()
    mean, largest = float(magnitude.mean()), float(magnitude.max())
    position, count = 0.8, 0
    while count < k and position > -1:
        count = int((magnitude > mean + position * (largest - mean)).sum())
        position -= 0.2
    return count


def sidco(x: torch.Tensor, density: float, law: str, stages: int) -> int:
    """Stages with ratios that are fixed in advance, on all entries, zeros included."""
    y = x.double().abs()

    def quantile(excess: torch.Tensor, ratio: float) -> float:
        mean = float(excess.mean())
        if law == "exponential":
            return -mean * math.log(ratio)
        q = mean * mean / float(excess.var())
        return 0.5 * mean * (q + 1) * (1 - ratio ** (0.5 * (q - 1))) / (0.5 * (q - 1))

    first = density if stages == 1 else 0.25
    threshold = quantile(y, first)
    for _ in range(stages - 1):
        tail = y[y > threshold]
        threshold = float(tail.min()) + quantile(tail - tail.min(), (density / first) ** (1 / (stages - 1)))
    return int((y > threshold).sum())


ORIGINALS: dict[str, Callable[[torch.Tensor, float], int]] = {
    "Gaussian-k": lambda x, d: gaussian_k(x, d, 2 / 3, 4 / 3, 0.5, 1.5, 4),
    "Gaussian-k, 0.8 n k": lambda x, d: gaussian_k(x, d, 0.8 * x.numel(), 1.2, 0.8, 1.2, 5),
    "RedSync": red_sync,
    "RedSync trimmed": red_sync_trimmed,
    "SIDCo-E 1": lambda x, d: sidco(x, d, "exponential", 1),
    "SIDCo-E 3": lambda x, d: sidco(x, d, "exponential", 3),
    "SIDCo-P 2": lambda x, d: sidco(x, d, "pareto", 2),
}
OURS: dict[str, Callable[[Item, float], Steered]] = {
    "Gaussian-k": lambda item, d: GaussianK([item], 1, d),
    "RedSync": lambda item, d: RedSync([item], 1, d),
    "RedSync trimmed": lambda item, d: RedSync([item], 1, d, search="trimmed"),
    "SIDCo-E": lambda item, d: Sidco([item], 1, d),
    "SIDCo-P": lambda item, d: Sidco([item], 1, d, law="pareto"),
}


def ours(make: Callable[[Item, float], Steered], name: str, density: float) -> str:
    """Median, smallest and largest multiple over steps 6 to 12."""
    item = Item("g", 0, (NUMEL,))
    method = make(item, density)
    generator = torch.Generator().manual_seed(1)
    counts = []
    for step in range(12):
        update = method.step(step, [{"g": draws(name, generator)}])["g"]
        counts.append(int((update != 0).sum()) / kept_count(NUMEL, density))
    late = counts[5:]
    return f"{median(late):.2f} ({min(late):.2f}–{max(late):.2f})"


def main(densities: list[float]) -> None:
    torch.set_num_threads(1)
    columns = [*ORIGINALS, *(f"ours: {name}" for name in OURS)]
    print("| density | law | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 2) + "|")
    for density in densities:
        for name in ("normal", "Laplace", "Student-t 3", "sparse"):
            x = draws(name, torch.Generator().manual_seed(0))
            k = kept_count(NUMEL, density)
            cells = [f"{original(x, density) / k:.2f}" for original in ORIGINALS.values()]
            cells += [ours(make, name, density) for make in OURS.values()]
            print(f"| {density} | {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main([float(word) for word in sys.argv[1:]] or [0.01, 0.001])
