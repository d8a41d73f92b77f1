"""Training with P simulated ranks that train apart: P sets of weights, whose distances to the shared weights are averaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import nn

from .method import Scheme
from .training import Run, TrainingTask, gradient


def simulate_apart(
    task: TrainingTask,
    make_scheme: Callable[[nn.Module], Scheme],
    *,
    every: int,
    delay: int = 0,
    mix: float = 0.0,
    ranks: int,
    steps: int,
    seed: int,
    make_optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
    on_step: Callable[[int, float], None] | None = None,
) -> Run:
    """Local SGD (Stich, 2019) with a scheme: rank r trains weights w_r from the shared weights a. After every `every` steps
    d = scheme(a - w_1, ..., a - w_P), and `delay` steps later, fewer than `every`, a <- a - d and
    w_r <- mix w_r + (1 - mix) a (Streaming DiLoCo, 2025). The losses and the validation are those of a."""
    shared = task.make_model(seed)
    scheme = make_scheme(shared)
    models = [task.make_model(seed) for _ in range(ranks)]
    optimizers = [make_optimizer(model.parameters()) for model in models]
    mean: dict[str, torch.Tensor] = {}
    run = Run()
    for step in range(steps):
        losses = []
        for rank, (model, optimizer) in enumerate(zip(models, optimizers)):
            with torch.no_grad():
                losses.append(float(task.loss(shared, task.batch(seed, step, rank))))
            gradient(task, model, seed, step, rank)
            optimizer.step()
        if (step + 1) % every == 0:
            mean = _mean_drift(shared, models, scheme)
        if mean and (step + 1 - delay) % every == 0:
            _apply(mean, shared, models, mix)
        run.losses.append(sum(losses) / ranks)
        if on_step is not None:
            on_step(step, run.losses[-1])
    run.validation = task.evaluate(shared)
    return run


@torch.no_grad()
def _mean_drift(shared: nn.Module, models: Sequence[nn.Module], scheme: Scheme) -> dict[str, torch.Tensor]:
    start = dict(shared.named_parameters())
    return scheme.step([{name: start[name] - p for name, p in model.named_parameters()} for model in models])


@torch.no_grad()
def _apply(mean: Mapping[str, torch.Tensor], shared: nn.Module, models: Sequence[nn.Module], mix: float) -> None:
    for name, parameter in shared.named_parameters():
        parameter -= mean[name]
        for model in models:
            own = model.get_parameter(name)
            own.copy_(mix * own + (1 - mix) * parameter)
