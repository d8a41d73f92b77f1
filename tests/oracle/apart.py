"""Training with P simulated ranks that train apart: P sets of weights, whose distances to the shared weights are averaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import nn

from .method import Scheme
from .training import Run, TrainingTask, gradient


def simulate_apart(
    task: TrainingTask,
    make_scheme: Callable[[nn.Module], Scheme],
    *,
    every: int,
    ranks: int,
    steps: int,
    seed: int,
    make_optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
    on_step: Callable[[int, float], None] | None = None,
) -> Run:
    """Local SGD (Stich, 2019) with a scheme: rank r trains weights w_r from the shared weights a for `every` steps; then
    a <- a - scheme(a - w_1, ..., a - w_P) and w_r <- a. The losses and the validation are those of a."""
    shared = task.make_model(seed)
    scheme = make_scheme(shared)
    models = [task.make_model(seed) for _ in range(ranks)]
    optimizers = [make_optimizer(model.parameters()) for model in models]
    run = Run()
    for step in range(steps):
        losses = []
        for rank, (model, optimizer) in enumerate(zip(models, optimizers)):
            with torch.no_grad():
                losses.append(float(task.loss(shared, task.batch(seed, step, rank))))
            gradient(task, model, seed, step, rank)
            optimizer.step()
        if (step + 1) % every == 0:
            _average(shared, models, scheme)
        run.losses.append(sum(losses) / ranks)
        if on_step is not None:
            on_step(step, run.losses[-1])
    run.validation = task.evaluate(shared)
    return run


@torch.no_grad()
def _average(shared: nn.Module, models: Sequence[nn.Module], scheme: Scheme) -> None:
    start = dict(shared.named_parameters())
    moved = scheme.step([{name: start[name] - p for name, p in model.named_parameters()} for model in models])
    for name, parameter in start.items():
        parameter -= moved[name]
    for model in models:
        model.load_state_dict(shared.state_dict())
