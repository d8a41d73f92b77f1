"""Methods that send the entries above a threshold, with a residual e (x = e + g, sent entries leave x, e = the rest).

    fixed        |x| >= t
    Gaussian-k   t = z sqrt(mean x^2), z the normal quantile of density / 2   (Shi et al., 2019)
    RedSync      t = m + q (M - m), m mean |x|, M largest |x|, q by bisection (Fang et al., 2019)
    SIDCo        t from a law fitted to |x|, in stages                         (Abdelmoniem et al., MLSys 2021)

The last three are steered: each gradient of each rank remembers the threshold that would have been right. If fewer than
0.9 k entries reach the threshold, the k largest are sent. If more than 1.1 k reach it, the 1.1 k largest are sent. Zeros
are never sent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import torch

from .method import Gradients, Item, Method, kept_count, largest
from .values import checked, narrowed, resolved


def reaching(values: torch.Tensor, threshold: float, most: int) -> torch.Tensor:
    """Ascending positions of non-zero entries with |x| >= threshold. If there are more than `most`, the largest."""
    passed = torch.nonzero((values.abs() >= threshold) & (values != 0)).flatten()
    return passed if passed.numel() <= most else passed[largest(values[passed], most)]


@dataclass
class Steering:
    """The memory of one gradient of one rank."""

    last: float = 0.0  # threshold that would have been right
    age: int = 0  # steps since the last estimate
    hit: bool = False
    learned: dict[str, float] = field(default_factory=dict)


class FixedThreshold(Method):
    """Every entry that reaches a fixed threshold, at most a share `capacity`."""

    def __init__(
        self,
        items: Sequence[Item],
        ranks: int,
        threshold: float = 0.01,
        capacity: float = 0.1,
        value_type: str = "fp32",
    ) -> None:
        super().__init__(items, ranks)
        self.value_type = checked(value_type)
        self.threshold = threshold
        self.capacity = capacity
        self.residual = self.zeros()

    def room(self, numel: int) -> int:
        """For how many entries a payload is planned."""
        return kept_count(numel, self.capacity)

    def choose(self, item: Item, rank: int, work: torch.Tensor) -> torch.Tensor:
        del rank
        return reaching(work, self.threshold, self.room(item.numel))

    def sent(self, item: Item, rank: int, step: int, work: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        """The sent values as a dense tensor."""
        del step, grad
        chosen = self.choose(item, rank, work)
        dense = torch.zeros_like(work)
        dense[chosen] = narrowed(work[chosen], resolved(self.value_type, self.room(item.numel), item.numel))
        return dense

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        update: Gradients = {}
        for item in self.items:
            total = torch.zeros(item.numel)
            for rank in range(self.ranks):
                grad = grads[rank][item.name].reshape(-1)
                work = self.residual[rank][item.name]
                work += grad
                sent = self.sent(item, rank, step, work, grad)
                total += sent
                work -= sent
            update[item.name] = (total / self.ranks).reshape(item.shape)
        return update

    def kept(self, rank: int) -> Gradients:
        return self.residual[rank]


class Steered(FixedThreshold):
    """Within a tenth of k = ceil(density n) entries, or exactly k."""

    exact = False

    def __init__(
        self,
        items: Sequence[Item],
        ranks: int,
        density: float = 0.001,
        reuse_period: int = 1,
        value_type: str = "fp32",
    ) -> None:
        super().__init__(items, ranks, value_type=value_type)
        self.density = density
        self.reuse_period = reuse_period
        self.steering = [{item.name: Steering() for item in self.items} for _ in range(ranks)]

    def estimate(self, steering: Steering, work: torch.Tensor) -> float:
        """A fresh threshold."""
        raise NotImplementedError

    def learn(self, steering: Steering, right: float) -> None:
        """Called after a fresh threshold. `right` is the threshold that would have been right; 0 if nothing was sent."""

    def room(self, numel: int) -> int:
        k = kept_count(numel, self.density)
        return k if self.exact else min(numel, k + k // 10)

    def settle(self, steering: Steering, work: torch.Tensor, k: int) -> torch.Tensor:
        """Returns the positions of the sent entries, and learns from their number."""
        least, most = (k, k) if self.exact else (k - k // 10, min(work.numel(), k + k // 10))
        reuse = steering.last > 0 and steering.age < self.reuse_period
        threshold = steering.last if reuse else self.estimate(steering, work)
        threshold *= 0.9 if self.exact else 1.0
        usable = 0.0 < threshold < math.inf
        chosen = reaching(work, threshold, most) if usable else torch.empty(0, dtype=torch.long)
        steering.hit = chosen.numel() >= least
        if not steering.hit:
            chosen = reaching(work, 0.0, k)
        right = 0.0
        if chosen.numel() == 0:
            steering.hit = False
        else:
            right = threshold
            if not steering.hit or chosen.numel() == most:
                right = float(work[chosen].abs().min())
                steering.hit = steering.hit and right < 1.25 * threshold
            right *= (chosen.numel() / k) ** (1 / (8 if chosen.numel() == most else 16))
        if not reuse:
            self.learn(steering, right)
        steering.last = right
        steering.age = self.reuse_period if not steering.hit else steering.age + 1 if reuse else 1
        return chosen

    def choose(self, item: Item, rank: int, work: torch.Tensor) -> torch.Tensor:
        return self.settle(self.steering[rank][item.name], work, kept_count(item.numel, self.density))


class GaussianK(Steered):
    """The quantile of a normal law around zero, times the factor that would have been right in the last step."""

    def estimate(self, steering: Steering, work: torch.Tensor) -> float:
        z = NormalDist().inv_cdf(1 - self.density / 2)
        steering.learned["fitted"] = z * math.sqrt(float(work.double().square().mean()))
        return steering.learned["fitted"] * steering.learned.get("correction", 1.0)

    def learn(self, steering: Steering, right: float) -> None:
        if steering.learned["fitted"] > 0 and right > 0:
            steering.learned["correction"] = right / steering.learned["fitted"]


class RedSync(Steered):
    """`search` is "bisection" or "trimmed" (exactly k). Quantised: one sign per step, alternately, as a mean."""

    def __init__(
        self,
        items: Sequence[Item],
        ranks: int,
        density: float = 0.001,
        reuse_period: int = 5,
        search: str = "bisection",
        quantised: bool = False,
        value_type: str = "fp32",
    ) -> None:
        super().__init__(items, ranks, density, reuse_period, value_type)
        self.exact = search == "trimmed"
        self.quantised = quantised
        self.negative = [{item.name: Steering() for item in self.items} for _ in range(ranks)]

    def estimate(self, steering: Steering, work: torch.Tensor) -> float:
        magnitude = work.double().abs()
        mean, width = float(magnitude.mean()), float(magnitude.max() - magnitude.mean())
        steering.learned |= {"mean": mean, "width": width}
        if "position" in steering.learned:
            return mean + steering.learned["position"] * width
        k = kept_count(work.numel(), self.density)

        def count(position: float) -> int:
            return int((magnitude >= mean + position * width).sum())

        if self.exact:
            return next((mean + q * width for q in (0.8, 0.6, 0.4, 0.2, 0.0) if count(q) >= k), 0.0) / 0.9
        low, high = 0.0, 1.0
        for _ in range(8):
            middle = (low + high) / 2
            if abs(count(middle) - k) <= k // 10:
                return mean + middle * width
            low, high = (middle, high) if count(middle) > k else (low, middle)
        return mean + low * width

    def learn(self, steering: Steering, right: float) -> None:
        steering.learned.pop("position", None)
        if steering.hit and steering.learned["width"] > 0:
            steering.learned["position"] = (right - steering.learned["mean"]) / steering.learned["width"]

    def sent(self, item: Item, rank: int, step: int, work: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        if not self.quantised:
            return super().sent(item, rank, step, work, grad)
        one_sign = work.clamp(min=0) if step % 2 == 0 else (-work).clamp(min=0)
        steering = (self.steering if step % 2 == 0 else self.negative)[rank][item.name]
        return mean_of(work, self.settle(steering, one_sign, kept_count(item.numel, self.density)))


def gamma_tail_quantile(shape: float, share: float) -> float:
    """x with P(X > x) = share for a gamma law of scale 1, by bisection."""
    tail = torch.special.gammaincc
    a, low, high = torch.tensor(shape, dtype=torch.float64), 0.0, shape + 1
    while float(tail(a, torch.tensor(high, dtype=torch.float64))) > share:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        above = float(tail(a, torch.tensor(middle, dtype=torch.float64))) > share
        low, high = (middle, high) if above else (low, middle)
    return (low + high) / 2


class Sidco(Steered):
    """`stages` = 0 adapts the number of stages for each gradient. Laws: "exponential"; "pareto", the generalised Pareto
    law; "gamma_pareto", a gamma law in the first stage and generalised Pareto laws in the others; "gaussian", a normal law
    of x with the mean and deviation of |x|.
    """

    def __init__(
        self,
        items: Sequence[Item],
        ranks: int,
        density: float = 0.001,
        reuse_period: int = 1,
        law: str = "exponential",
        stages: int = 0,
        first_ratio: float = 0.25,
        value_type: str = "fp32",
    ) -> None:
        super().__init__(items, ranks, density, reuse_period, value_type)
        if law not in ("exponential", "pareto", "gamma_pareto", "gaussian"):
            raise ValueError(f"law is {law!r}, which this oracle does not simulate")
        self.law = law
        self.first_ratio = first_ratio
        self.stages = 1 if density >= first_ratio else stages

    def wanted(self, n: int, stage: int, stages: int) -> float:
        """The number of entries that pass a stage."""
        if stage == stages:
            return kept_count(n, self.density)
        return n * self.first_ratio * (self.density / self.first_ratio) ** ((stage - 1) / (stages - 1))

    def quantile(self, excess: torch.Tensor, wanted: float, first: bool) -> float:
        """The excess over the origin that `wanted` entries reach, if they follow the law. `first`: the origin is 0."""
        if excess.numel() <= wanted:
            return 0.0
        share, mean = wanted / excess.numel(), float(excess.mean())
        if self.law == "exponential":
            return -mean * math.log(share)
        variance = float(excess.var(correction=0))
        if self.law == "gaussian":
            return max(0.0, mean + math.sqrt(variance) * NormalDist().inv_cdf(1 - share / 2))
        if self.law == "gamma_pareto" and first:
            s = math.log(mean) - float(excess.log().mean())
            if s > 1e-9:
                shape = (3 - s + math.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
                return mean / shape * gamma_tail_quantile(shape, share)
        if variance <= 1e-12 * mean * mean:
            return mean
        ratio = mean * mean / variance
        shape, scale = (ratio - 1) / 2, mean * (ratio + 1) / 2
        return -scale * math.log(share) if abs(shape) < 1e-6 else -scale * math.expm1(shape * math.log(share)) / shape

    def estimate(self, steering: Steering, work: torch.Tensor) -> float:
        magnitude, n = work.double().abs(), work.numel()
        stages = self.stages or int(steering.learned.get("stages", 1))

        def above(origin: float) -> torch.Tensor:
            return (magnitude - origin)[magnitude > origin]

        origin = 0.0 if stages == 1 else steering.learned.get("origin", 0.0)
        excess = above(origin)
        expected = self.wanted(n, stages - 1, stages) if stages > 1 else math.inf
        if stages > 1 and not (origin > 0 and expected / 2 <= excess.numel() <= expected * 2):
            origin, excess = 0.0, above(0.0)
            for stage in range(1, stages):
                following = origin + self.quantile(excess, self.wanted(n, stage, stages), origin == 0)
                if above(following).numel() == 0:
                    break
                origin, excess = following, above(following)
        fitted = origin + self.quantile(excess, self.wanted(n, stages, stages), origin == 0)
        mean = float(excess.mean()) if excess.numel() else 0.0
        if excess.numel() > expected:
            origin += self.quantile(excess, expected, origin == 0)
        elif 0 < excess.numel() < expected < math.inf:
            origin -= min(origin / 2, mean * math.log(expected / excess.numel()))
        steering.learned |= {"fitted": fitted, "mean": mean, "origin": origin}
        return fitted * steering.learned.get("correction", 1.0)

    def learn(self, steering: Steering, right: float) -> None:
        learned = steering.learned
        if learned["fitted"] <= 0 or right <= 0:
            return
        learned["correction"] = right / learned["fitted"]
        if self.stages or learned["mean"] <= 0:
            return
        ratio = math.exp(max(-3.0, min(3.0, (right - learned["fitted"]) / learned["mean"])))
        ratios = learned.setdefault("ratio_sum", 0.0) + ratio, learned.setdefault("ratios", 0.0) + 1
        learned["ratio_sum"], learned["ratios"] = ratios
        if learned["ratios"] < 5:
            return
        mean, stages = learned["ratio_sum"] / learned["ratios"], learned.get("stages", 1.0)
        changed = min(max(1.0, stages + (mean < 0.8) - (mean > 1.2)), float(math.ceil(math.log2(1 / self.density))))
        learned |= {"stages": changed, "ratio_sum": 0.0, "ratios": 0.0}
        if changed != stages:
            learned["origin"] = 0.0


def mean_of(work: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """A dense tensor with the mean of the chosen entries at each chosen position."""
    dense = torch.zeros_like(work)
    if chosen.numel():
        dense[chosen] = float(work[chosen].double().mean())
    return dense


class AdaQ(Steered):
    """Equal shares of the positive and of the negative entries, as one mean for each sign (Dryden et al., 2016)."""

    def __init__(self, items: Sequence[Item], ranks: int, density: float = 0.01) -> None:
        super().__init__(items, ranks, density)
        self.negative = [{item.name: Steering() for item in self.items} for _ in range(ranks)]

    def estimate(self, steering: Steering, work: torch.Tensor) -> float:
        return steering.last

    def sent(self, item: Item, rank: int, step: int, work: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        dense = torch.zeros_like(work)
        for steering, one_sign in ((self.steering, work.clamp(min=0)), (self.negative, (-work).clamp(min=0))):
            count = int((one_sign > 0).sum())
            if count:
                dense += mean_of(work, self.settle(steering[rank][item.name], one_sign, kept_count(count, self.density)))
        return dense


class AdaComp(FixedThreshold):
    """In each bin of G = e + g: the entries with |G + g| >= max |G|, as sign(G) times the mean of the maxima of all bins
    (Chen et al., 2018)."""

    def __init__(self, items: Sequence[Item], ranks: int, bin_length: int = 50, capacity: float = 1.0) -> None:
        super().__init__(items, ranks, capacity=capacity)
        self.bin_length = bin_length

    def sent(self, item: Item, rank: int, step: int, work: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        bins = torch.nn.functional.pad(work.abs(), (0, -item.numel % self.bin_length)).reshape(-1, self.bin_length)
        maxima = bins.max(dim=1).values
        passes = (work + grad).abs() >= maxima.repeat_interleave(self.bin_length)[: item.numel]
        chosen = reaching(torch.where(passes, work, 0.0), 0.0, kept_count(item.numel, self.capacity))
        dense = torch.zeros_like(work)
        dense[chosen] = work[chosen].sign() * float(maxima.double().mean())
        return dense
