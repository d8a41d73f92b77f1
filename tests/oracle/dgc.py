"""Deep Gradient Compression (Lin et al., ICLR 2018): momentum before selection, masking, a sampled threshold.

Per rank r and gradient, with momentum factor m:

    g   = clip(g_r)
    u   = m u + g,        v = v + u              heavy ball
    u   = m (u + g),      v = v + u + g          Nesterov
    I_r = select(|v|);    update = (1/P) sum_r v_r[I_r];    v[I_r] = 0;    with masking also u[I_r] = 0

Narrow values leave their rounding error in v.

Dense gradients (1-D by default) are averaged first and get their momentum afterwards, equal on all ranks:
    g = clip((1/P) sum_r g_r);  u = m u + g, update = u;  or  u = m (u + g), update = u + g.
The optimizer must then have no momentum of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from .method import Gradients, Item, Method, ascending_sum, kept_count, largest
from .random import GOLDEN, MASK, splitmix64
from .values import checked, resolved, take

SamplingStart = Callable[[int, int, int, int], int]  # (seed, step, gradient, stride) -> start in [0, stride)


@dataclass(frozen=True)
class Geometry:
    """The number of sent entries, and the sampling of the threshold."""

    numel: int
    kept: int  # k
    stride: int
    samples: int  # N_s; numel means: all entries
    sampled_kept: int  # k_s


def geometry(numel: int, density: float, sample_ratio: float = 0.01) -> Geometry:
    """k = ceil(n d). The sample is large enough for a share `sample_ratio` and for two expected entries above the
    threshold; strides are 1 modulo 8, so that they do not resonate with power-of-two shapes."""
    kept = kept_count(numel, density)
    ratio = min(1.0, max(0.01, sample_ratio))
    floor = math.ceil(2.0 / density - 1e-9)
    if ratio == 1.0 or numel <= floor or kept == numel:
        return Geometry(numel, kept, 1, numel, kept)
    need = max(math.ceil(numel * ratio - 1e-9), floor)
    stride = 32 * math.ceil(numel / need / 32) + 1
    samples = numel // stride
    while samples < need:
        stride -= 8
        samples = numel // stride
    return Geometry(numel, kept, stride, samples, kept_count(samples, density))


def sampling_start(seed: int, step: int, gradient: int, stride: int) -> int:
    """Counter hash of (seed, step, gradient): equal in every run, different from step to step."""
    return splitmix64(splitmix64(seed ^ splitmix64((gradient * GOLDEN + 3) & MASK)) + step * GOLDEN & MASK) % stride


def select(
    values: torch.Tensor, shape: Geometry, start: int, upper: float = 1.3, lower: float = 0.8, rounds: int = 10
) -> torch.Tensor:
    """Ascending positions of at most k entries: entries at or above the sampled threshold, cut to the k largest.

    While fewer than lower * k pass, the threshold falls by that factor, at most `rounds` times. If more than k
    pass, the k largest of the passed entries are taken (hierarchical selection). These are the k largest of all
    entries.
    """
    del upper  # the published band only decides between two ways to cut to k; by magnitude both give one set
    magnitude = values.abs()
    everything = shape.samples == shape.numel
    sample = magnitude if everything else magnitude[start :: shape.stride]
    threshold = torch.topk(sample, min(shape.sampled_kept, sample.numel())).values[-1]
    chosen = torch.nonzero(magnitude >= threshold).flatten()
    if not everything:
        for _ in range(rounds):
            if chosen.numel() >= lower * shape.kept:
                break
            threshold = threshold * lower
            chosen = torch.nonzero(magnitude >= threshold).flatten()
    if chosen.numel() > shape.kept:
        chosen = chosen[largest(values[chosen], shape.kept)]
    return chosen


@dataclass(frozen=True)
class DgcOptions:
    """Names as in the scheme file."""

    density: float = 0.001
    sample_ratio: float = 0.01
    momentum: float = 0.9
    nesterov: bool = False
    masking: bool = True
    value_type: str = "fp32"
    clipping: str = "none"  # of the rank's gradient, by its own norm; global: by sqrt(mean over ranks of |g|^2)
    clip: float = 1.0
    seed: int = 1


CLIPPINGS = ("none", "norm", "norm_global", "value", "value_global")


def clipped(grad: torch.Tensor, norm: float, options: DgcOptions) -> torch.Tensor:
    """norm: g min(1, clip / (|g| + 1e-6)); value: into [-clip, clip]; value_global: into clip |g| [-1, 1]."""
    if options.clipping not in CLIPPINGS:
        raise ValueError(f"clipping is {options.clipping!r}, expected one of {', '.join(CLIPPINGS)}")
    if options.clipping.startswith("norm"):
        return grad * min(1.0, options.clip / (norm + 1e-6))
    if options.clipping == "none":
        return grad
    bound = options.clip * (norm if options.clipping == "value_global" else 1.0)
    return grad.clamp(-bound, bound)


class Dgc(Method):
    """Applies DGC to the compressed gradients."""

    def __init__(
        self, items: Sequence[Item], ranks: int, options: DgcOptions, start: SamplingStart = sampling_start
    ) -> None:
        super().__init__(items, ranks)
        self.options = options
        self.start = start
        checked(options.value_type)
        self.shapes = {item.name: geometry(item.numel, options.density, options.sample_ratio) for item in self.items}
        self.momentum = self.zeros()
        self.velocity = self.zeros()

    def _clipped(self, item: Item, grads: Sequence[Mapping[str, torch.Tensor]]) -> list[torch.Tensor]:
        flat = [g[item.name].reshape(-1) for g in grads]
        if self.options.clipping == "none":
            return flat
        squares = [float(g.double().square().sum()) for g in flat]
        if self.options.clipping.endswith("_global"):
            squares = [sum(squares) / self.ranks] * self.ranks
        return [clipped(g, math.sqrt(square), self.options) for g, square in zip(flat, squares)]

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        update: Gradients = {}
        for item in self.items:
            total = torch.zeros(item.numel)
            start = self.start(self.options.seed, step, item.index, self.shapes[item.name].stride)
            for rank, grad in enumerate(self._clipped(item, grads)):
                u, v = self.momentum[rank][item.name], self.velocity[rank][item.name]
                accumulate(u, v, grad, self.options)
                chosen = select(v, self.shapes[item.name], start)
                total[chosen] += take(v, chosen, resolved(self.options.value_type, self.shapes[item.name].kept, item.numel))
                if self.options.masking:
                    u[chosen] = 0.0
            update[item.name] = (total / self.ranks).reshape(item.shape)
        return update

    def kept(self, rank: int) -> Gradients:
        return self.velocity[rank]


def accumulate(u: torch.Tensor, v: torch.Tensor, grad: torch.Tensor, options: DgcOptions) -> None:
    """Momentum correction in place: u and v as at the top of the file."""
    if options.nesterov:
        u.add_(grad).mul_(options.momentum)
        v.add_(u).add_(grad)
    else:
        u.mul_(options.momentum).add_(grad)
        v.add_(u)


class DenseWithMomentum(Method):
    """Averages the dense gradients, clips the average, and then applies the momentum."""

    def __init__(self, items: Sequence[Item], ranks: int, options: DgcOptions) -> None:
        super().__init__(items, ranks)
        self.options = options
        self.momentum = {item.name: torch.zeros(item.shape) for item in self.items}

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        update: Gradients = {}
        for item in self.items:
            mean = ascending_sum([g[item.name] for g in grads]) / self.ranks
            if self.options.clipping != "none":
                mean = clipped(mean, float(mean.double().norm()), self.options)
            u = self.momentum[item.name]
            if self.options.nesterov:
                u.add_(mean).mul_(self.options.momentum)
                update[item.name] = u + mean
            else:
                u.mul_(self.options.momentum).add_(mean)
                update[item.name] = u.clone()
        return update
