"""Who takes part in tools/bench step: schemes of conf/, what DistributedDataParallel has, and a stand-in for sparsifying
frameworks. This file is imported without torch by the command, and with it by the ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

CONF = Path(__file__).resolve().parents[3] / "conf"
PROFILES = Path(__file__).resolve().parents[2] / "penstock/plan/profiles"
LOW_RANK = 4  # of torch's PowerSGD, as in conf/power-sgd.toml
DENSITY = 0.01  # of the stand-in, as in conf/topk-residual.toml

THEIRS = {
    "ddp": "DistributedDataParallel over gloo, dense",
    "ddp-fp16": "the same with torch's fp16_compress_hook",
    "ddp-powersgd": f"the same with torch's powerSGD_hook, rank {LOW_RANK}",
    "grace-style": f"per gradient: residual, torch.topk of {DENSITY:.0%}, two all-gathers over gloo, scatter",
}
DEFAULT = (
    "ddp", "ddp-fp16", "ddp-powersgd", "grace-style", "s-sgd", "topk-residual", "dgc", "power-sgd", "acp-sgd", "ef-sign", "ok-topk",
)  # fmt: skip
DENSE = ("ddp", "s-sgd")  # whose results are the mean, to rounding


def models() -> list[str]:
    return sorted(path.stem for path in PROFILES.glob("*.csv") if path.stem != "costs")


def known() -> list[str]:
    return [*THEIRS, *sorted(path.stem for path in CONF.glob("*.toml"))]


def scheme_of(name: str) -> str:
    """The scheme as it is after warm-up: switches, which raise the density of the first epochs, are left out."""
    return (CONF / f"{name}.toml").read_text(encoding="utf-8").split("[[switch]]")[0]


Step = Callable[[Sequence["torch.Tensor"]], Sequence["torch.Tensor"]]


def make(name: str, gradients: Sequence[torch.Tensor]) -> tuple[Step, Callable[[], None]]:
    """What exchanges gradients of these shapes and returns the results, and what ends a step outside of its time."""
    import torch

    from benches.given_gradients import Model

    if name == "grace-style":
        return sparse_gathers(gradients), lambda: None
    model = Model(gradients)
    if name not in THEIRS:
        return ours(name, model)
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel

    # Over gloo PowerSGD's second sum of a bucket starts from a thread of its own: with several buckets ranks would disagree on the order.
    options: dict[str, Any] = {"bucket_cap_mb": 1024} if name == "ddp-powersgd" else {}
    parallel = DistributedDataParallel(model, init_sync=False, **options)
    if name == "ddp-fp16":
        parallel.register_comm_hook(None, fp16_compress_hook)
    if name == "ddp-powersgd":
        state = PowerSGDState(None, matrix_approximation_rank=LOW_RANK, start_powerSGD_iter=2, warm_start=True)
        parallel.register_comm_hook(state, powerSGD_hook)

    def step(values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        parallel(values).backward()
        return model.results()

    return step, model.forget


def ours(name: str, model: Any) -> tuple[Step, Callable[[], None]]:
    import torch

    import penstock.torch as hvd

    sgd = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer = hvd.DistributedOptimizer(sgd, named_parameters=model.named_parameters(), scheme=scheme_of(name))

    def step(values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        model(values).backward()
        optimizer.synchronize()
        return model.results()

    def end() -> None:
        with optimizer.skip_synchronize():
            optimizer.step()
        model.forget()

    return step, end


def sparse_gathers(gradients: Sequence[torch.Tensor]) -> Step:
    """What a framework does that compresses gradient by gradient with torch's own operations."""
    import torch
    import torch.distributed as dist

    size = dist.get_world_size()
    residuals = [torch.zeros(gradient.numel()) for gradient in gradients]

    def step(values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        results = []
        for value, residual in zip(values, residuals):
            residual += value.view(-1)
            _, indices = torch.topk(residual.abs(), max(1, int(residual.numel() * DENSITY)), sorted=False)
            chosen = residual[indices]
            residual[indices] = 0.0
            all_values = [torch.empty_like(chosen) for _ in range(size)]
            all_indices = [torch.empty_like(indices) for _ in range(size)]
            dist.all_gather(all_values, chosen)
            dist.all_gather(all_indices, indices)
            result = torch.zeros_like(residual)
            for one_values, one_indices in zip(all_values, all_indices):
                result[one_indices] += one_values
            results.append((result / size).view(value.shape))
        return results

    return step
