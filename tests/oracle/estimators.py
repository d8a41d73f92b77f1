"""How many entries the published threshold estimators select, as a multiple of the wanted number, beside our plugins.

    python -m tests.oracle.estimators [--markdown] [DENSITY ...]     0.01 and 0.001 unless said

There are 2^16 independent entries. As published: the formulas and correction loops of the authors' or the benchmarks'
releases, written anew with their faults, in their first step. Ours: the numbers that the plugins of build/release send,
median and range over steps 6 to 12 with a residual and fresh gradients in every step. --markdown writes docs/thresholds.md.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import NormalDist

import torch

from .dgc import geometry
from .method import kept_count, largest

NUMEL = 1 << 16
LAWS = ("normal", "Laplace", "Student-t 3", "sparse")
BUILD = Path(__file__).resolve().parents[2] / "build" / "release"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "thresholds.md"


def draws(name: str, generator: torch.Generator) -> torch.Tensor:
    """Independent entries. sparse: Laplace with nine of ten entries exactly zero."""
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
    """t = mu + z sigma, evaluated `rounds` times with a correction after each. Returns the last count."""
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
    """From 0.8 down in steps of 0.2 until k entries pass. Counts all passing entries, without the final selection."""
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


def dgc(x: torch.Tensor, density: float, corrected: bool) -> int:
    """Counts the entries that reach the threshold of a strided sample. Corrected: if more than 1.3 k pass, the k largest; if
    fewer than 0.8 k pass, the threshold is multiplied by 0.8, at most ten times; then the first k by position."""
    magnitude, shape = x.abs(), geometry(x.numel(), density)
    sample = magnitude[shape.stride // 2 :: shape.stride]
    threshold = torch.topk(sample, shape.sampled_kept).values[-1]
    chosen = torch.nonzero(magnitude >= threshold).flatten()
    for _ in range(10 if corrected else 0):
        if chosen.numel() > 1.3 * shape.kept:
            chosen = chosen[largest(x[chosen], shape.kept)]
            break
        if chosen.numel() >= 0.8 * shape.kept:
            break
        threshold = threshold * 0.8
        chosen = torch.nonzero(magnitude >= threshold).flatten()
    return chosen[: shape.kept].numel() if corrected else chosen.numel()


def dgc_of_benchmarks(x: torch.Tensor, density: float) -> int:
    """The threshold comes from a hundredth of the entries, drawn with replacement. Then up to ten corrections by 1.3 or 0.7.
    Counts all passing entries."""
    k = kept_count(x.numel(), density)
    drawn = torch.randint(x.numel(), (x.numel() // 100,), generator=torch.Generator().manual_seed(2))
    magnitude = x.abs()
    threshold = torch.topk(magnitude[drawn], max(1, int(0.01 * density * x.numel()))).values[-1]
    count = int((magnitude >= threshold).sum())
    for _ in range(10):
        if 0.7 * k <= count <= 1.3 * k:
            break
        threshold = threshold * (1.3 if count > 1.3 * k else 0.7)
        count = int((magnitude >= threshold).sum())
    return count


PUBLISHED: dict[str, Callable[[torch.Tensor, float], int]] = {
    "Gaussian-k": lambda x, d: gaussian_k(x, d, 2 / 3, 4 / 3, 0.5, 1.5, 3),
    "Gaussian-k, 0.8 n k": lambda x, d: gaussian_k(x, d, 0.8 * x.numel(), 1.2, 0.8, 1.2, 5),
    "RedSync": red_sync,
    "RedSync trimmed": red_sync_trimmed,
    "SIDCo-E, 1 stage": lambda x, d: sidco(x, d, "exponential", 1),
    "SIDCo-E, 3 stages": lambda x, d: sidco(x, d, "exponential", 3),
    "SIDCo-P, 2 stages": lambda x, d: sidco(x, d, "pareto", 2),
    "DGC, sampled": lambda x, d: dgc(x, d, False),
    "DGC": lambda x, d: dgc(x, d, True),
    "DGC of benchmarks": dgc_of_benchmarks,
}


def published(densities: Sequence[str]) -> dict[tuple[str, str, str], str]:
    """By method, law and density."""
    cells = {}
    for law in LAWS:
        x = draws(law, torch.Generator().manual_seed(0))
        for density in densities:
            k = kept_count(NUMEL, float(density))
            for name, estimate in PUBLISHED.items():
                cells[name, law, density] = f"{estimate(x, float(density)) / k:.2f}"
    return cells


def ours(densities: Sequence[str]) -> dict[tuple[str, str, str], str]:
    """The numbers that the plugins send, by method, law and density."""
    program = BUILD / "tests" / "threshold_table"
    if not program.exists():
        raise SystemExit(f"{program} is not there; build it: ninja -C build/release threshold_table")
    environment = os.environ | {"PENSTOCK_PLUGIN_DIRECTORY": str(BUILD / "lib/penstock/plugins")}
    ran = subprocess.run([program, *densities], env=environment, check=True, capture_output=True, text=True)
    cells = {}
    for line in ran.stdout.splitlines():
        name, law, density, median, least, most = line.split("\t")
        cells[name, law, density] = f"{float(median):.2f} ({float(least):.2f}–{float(most):.2f})"
    return cells


def table(cells: dict[tuple[str, str, str], str], densities: Sequence[str]) -> str:
    """Methods as rows, laws and densities as columns."""
    columns = [(law, density) for density in densities for law in LAWS]
    lines = ["| method | " + " | ".join(f"{law}, {density}" for law, density in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for name in dict.fromkeys(key[0] for key in cells):
        lines.append(f"| {name} | " + " | ".join(cells[name, *column] for column in columns) + " |")
    return "\n".join(lines)


TEXT = """# What threshold methods send

Written by `python -m tests.oracle.estimators --markdown` after
`ninja -C build/release threshold_table`; `thresholds_test` holds our plugins to it.

This page shows the number of entries that a threshold method sends in a step, as a multiple of the
wanted number k. There are n = 65536 independent entries. Columns give the law of the entries and
the density. "Sparse" is Laplace with nine of ten entries exactly zero.

## As published

The table shows the first step of the published estimates with their correction loops. They come
from the papers or the authors' releases, or else from copies in circulation, and they keep their
faults. A later step repeats the estimate on other numbers and uses nothing of earlier steps.

{published}

- Gaussian-k: a normal law. The release counts the passing entries up to three times, and between
  two counts multiplies the threshold by 0.5 or 1.5. If the threshold oscillates (Laplace, 0.01),
  the last count is further from k than the first. The copy "0.8 n k" compares with 0.8 n k instead
  of 0.8 k.
- RedSync: the bisection stops when its interval is 0.2 or less. "RedSync trimmed" is the trimmed
  search without its final selection of k entries, as in the copies in circulation.
- SIDCo: ratios of the stages are fixed in advance, and zeros are part of the fit.
- DGC: "sampled" counts the entries that reach the threshold of the sample. "DGC" counts the sent
  entries, after the corrections and the cut to the first k by position. "Of benchmarks" samples
  with replacement and has no cut.

## Ours

These are the plugins with their defaults, with a residual. Figures are medians and ranges over
steps 6 to 12. All plugins except DGC send within a tenth of k by rule: a step whose threshold
misses this band selects exactly. DGC keeps the rule of its paper, which corrects only counts below
0.8 k and never sends more than k. With `lower = 0.9` DGC is within a tenth too.

{ours}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--markdown", action="store_true", help=f"write {PAGE.name} instead of printing")
    parser.add_argument("densities", nargs="*", default=["0.01", "0.001"], metavar="DENSITY")
    options = parser.parse_args()
    torch.set_num_threads(1)
    densities = options.densities
    tables = {"published": table(published(densities), densities), "ours": table(ours(densities), densities)}
    if options.markdown:
        PAGE.write_text(TEXT.format(**tables), encoding="utf-8")
    else:
        print("As published\n" + tables["published"] + "\n\nOurs\n" + tables["ours"], file=sys.stdout)


if __name__ == "__main__":
    main()
