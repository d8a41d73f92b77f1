"""Users' recipes for DistributedDataParallel, through ddp_hook. The dense scheme must give
torch's own averages, and a compressed scheme must give equal parameters on every rank."""

from __future__ import annotations

import warnings
from typing import Any, Callable

import torch
import torch.distributed as dist
from ddp_support import (
    DENSE,
    DGC,
    RANK,
    SIZE,
    TOPK,
    bits_of,
    ends_of,
    join_torch,
    part,
    same_bits,
    same_everywhere,
    sgd,
    train,
    wrap,
)
from support import close, expect, loss_of, make_batch, make_model, needs_torch, run_checks
from torch.nn.parallel import DistributedDataParallel

import penstock.torch as hvd
from penstock.torch import PenstockState, ddp_hook

SMALL = {"bucket_cap_mb": 0.0002}
Training = Callable[[Any, torch.nn.Module, "PenstockState | None"], Any]


def compare(
    training: Training,
    make: Callable[[], torch.nn.Module] = make_model,
    tolerance: float = 1e-6,
    **options: Any,
) -> None:
    """The training with the hook and without."""
    for scheme in (DENSE, TOPK):
        hooked, plain = make(), make()
        ddp, state = wrap(hooked, scheme, **options, **SMALL)
        training(ddp, hooked, state)
        same_everywhere(hooked)
        assert all(p.isfinite().all() for p in hooked.parameters())
        state.close()
        if scheme is DENSE:
            training(DistributedDataParallel(plain, **options, **SMALL), plain, None)
            close(hooked, plain, tolerance)


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = make_batch(step, 4 * SIZE)
    return part(x), part(y)


def check_clipping_before_the_step() -> None:
    def training(ddp: Any, model: torch.nn.Module, _: Any) -> None:
        norms: list[float] = []

        def clip() -> None:
            norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)))

        train(ddp, sgd(model, momentum=0.9), change=clip)
        assert max(norms) > 0.05, "nothing was clipped"

    compare(training)


@needs_torch((2, 3), "GradScaler for the CPU")
def check_grad_scaler_with_infinities() -> None:
    def training(ddp: Any, model: torch.nn.Module, state: PenstockState | None) -> None:
        optimizer = sgd(model)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
        scales = []
        ends: list[bool] = []
        for step in range(9):
            optimizer.zero_grad()
            scales.append(scaler.get_scale())
            if state is not None:
                state.set_grad_scale(scaler.get_scale())
                ends = ends if step != 1 else ends_of(state)
            x, y = batch(step)
            spoilt = float("inf") if step in (0, 4) and RANK == SIZE - 1 else 1.0
            scaler.scale(loss_of(ddp, x * spoilt, y)).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        assert min(scales) < 1024.0 < max(scales) * 2
        # As long as no optimizer was seen, the void buckets reported step 0.
        assert state is None or ends == [False, True, True, True, False, True, True, True], ends

    compare(training)


@needs_torch((2, 3), "GradScaler for the CPU")
def check_an_untold_loss_scale_is_warned_of_once() -> None:
    model = make_model()
    ddp, state = wrap(model, TOPK)
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(3):
            optimizer.zero_grad()
            scaler.scale(loss_of(ddp, *batch(step))).backward()
            scaler.step(optimizer)
            scaler.update()
    texts = [str(one.message) for one in caught if "set_grad_scale" in str(one.message)]
    assert len(texts) == 1 and "state.set_grad_scale(scaler.get_scale())" in texts[0], texts
    state.close()


def check_bfloat16_by_autocast() -> None:
    def training(ddp: Any, model: torch.nn.Module, _: Any) -> None:
        optimizer = sgd(model, momentum=0.9)
        for step in range(6):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = loss_of(ddp, *batch(step))
            loss.backward()
            optimizer.step()

    # Activations are rounded to 8 bits, so a difference of 1e-7 in a parameter may change an
    # activation.
    compare(training, tolerance=1e-2)


@needs_torch((2, 3), "bfloat16 over gloo")
def check_a_model_of_bfloat16() -> None:
    def training(ddp: Any, model: torch.nn.Module, _: Any) -> None:
        optimizer = sgd(model)
        for step in range(4):
            optimizer.zero_grad()
            x, y = batch(step)
            loss_of(ddp, x.bfloat16(), y.bfloat16()).backward()
            optimizer.step()

    # torch divides before it adds, the core after: both round to 8 bits.
    compare(training, make=lambda: make_model(torch.bfloat16), tolerance=3e-2)


class Mixed(torch.nn.Module):
    """The inner layer is bfloat16, so DDP puts it into separate buckets."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.into, self.out = torch.nn.Linear(5, 6), torch.nn.Linear(6, 3)
        self.inner = torch.nn.Linear(6, 6).bfloat16()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.inner(self.into(x).bfloat16()).float())


@needs_torch((2, 3), "bfloat16 over gloo")
def check_a_model_of_two_element_types() -> None:
    # Rounding as for a model of bfloat16, in a part of the model.
    compare(lambda ddp, model, _: train(ddp, sgd(model), 4), make=Mixed, tolerance=3e-2)


class Spectral(torch.nn.Module):
    """A layer with complex weights, as Fourier neural operators have."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3, 5, dtype=torch.complex64))
        self.scale = torch.nn.Parameter(torch.ones((), dtype=torch.complex64))
        self.last = torch.nn.Linear(8, 8)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft(rows) * self.weight.sum(0) * self.scale
        return self.last(torch.fft.irfft(spectrum, n=8))


def check_complex_weights_get_the_mean_of_all_ranks() -> None:
    everything = TOPK.replace("density = 0.1", "density = 1.0")
    rows = torch.randn(4, 8, generator=torch.Generator().manual_seed(1 + RANK))
    ends = []
    for scheme in (None, DENSE, everything):
        torch.manual_seed(0)
        model = Spectral()
        ddp = DistributedDataParallel(model) if scheme is None else wrap(model, scheme)[0]
        for _ in range(2):
            model.zero_grad()
            (ddp(rows) - rows.flip(1)).square().mean().backward()
        ends.append([parameter.grad.clone() for parameter in model.parameters()])
    for ours in ends[1:]:
        for own, torchs in zip(ours, ends[0]):
            torch.testing.assert_close(own, torchs, rtol=1e-5, atol=1e-6)


def check_accumulation_without_no_sync_counts_each_backward_as_applied() -> None:
    def training(ddp: Any, model: torch.nn.Module, state: PenstockState | None) -> None:
        optimizer = sgd(model)
        ends: list[bool] = []
        for step in range(4):
            optimizer.zero_grad()
            for half in range(2):
                loss_of(ddp, *batch(2 * step + half)).backward()
            optimizer.step()
            if step == 0 and state is not None:
                ends = ends_of(state)
        assert state is None or ends == [True] * 6, ends

    compare(training)


class Branches(torch.nn.Module):
    """The branch that a rank uses changes from step to step. One branch is never used."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.branches = torch.nn.ModuleList([torch.nn.Linear(5, 3) for _ in range(3)])
        self.never = torch.nn.Linear(5, 3)
        self.turn = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.turn += 1
        return self.branches[(self.turn + RANK) % 3](x)


def check_unused_parameters() -> None:
    def training(ddp: Any, model: torch.nn.Module, _: Any) -> None:
        train(ddp, sgd(model), 9)

    compare(training, make=Branches, find_unused_parameters=True)


class Tied(torch.nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.into, self.out = torch.nn.Linear(5, 5), torch.nn.Linear(5, 5)
        self.out.weight = self.into.weight
        self.last = torch.nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.out(self.into(x).tanh()))


def check_shared_parameters() -> None:
    compare(lambda ddp, model, _: train(ddp, sgd(model, momentum=0.9)), make=Tied)


def check_two_optimizers() -> None:
    def training(ddp: Any, model: torch.nn.Module, state: PenstockState | None) -> None:
        weights = torch.optim.Adam([p for p in model.parameters() if p.dim() > 1], lr=0.01)
        biases = torch.optim.SGD([p for p in model.parameters() if p.dim() == 1], lr=0.1)
        ends: list[bool] = []
        for step in range(6):
            model.zero_grad()
            loss_of(ddp, *batch(step)).backward()
            biases.step()
            weights.step()
            if step == 0 and state is not None:
                ends = ends_of(state)
        assert state is None or ends == [True] * 5

    compare(training, tolerance=1e-5)


def check_parameters_changed_without_an_optimizer_of_torch() -> None:
    def training(ddp: Any, model: torch.nn.Module, state: PenstockState | None) -> None:
        ends: list[bool] = []
        for step in range(5):
            model.zero_grad()
            loss_of(ddp, *batch(step)).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
            if step == 0 and state is not None:
                ends = ends_of(state)
            if step == 2 and state is not None:
                state.step_end()
        assert state is None or ends == [True] * 4

    compare(training)


def check_two_models_side_by_side() -> None:
    def alone(scheme: str) -> list[torch.Tensor]:
        model = make_model()
        ddp, state = wrap(model, scheme, **SMALL)
        train(ddp, sgd(model))
        state.close()
        return bits_of(model)

    models = [make_model(), make_model()]
    schemes = [TOPK, DGC]
    wrapped = [wrap(model, scheme, **SMALL) for model, scheme in zip(models, schemes)]
    optimizers = [sgd(model) for model in models]
    for step in range(6):
        for (ddp, _), optimizer in zip(wrapped, optimizers):
            optimizer.zero_grad()
            loss_of(ddp, *batch(step)).backward()
        for optimizer in optimizers:
            optimizer.step()
    for _, state in wrapped:
        state.close()
    for model, scheme in zip(models, schemes):
        same_bits(bits_of(model), alone(scheme))


def check_names_are_the_models_and_rules_know_them() -> None:
    model = make_model()
    scheme = hvd.Scheme(
        compressor="topk",
        memory="residual",
        scheduler="wfbp",
        options={"compressor.topk": {"density": 0.1}},
        rules=[{"match": {"dims": 1}, "compressor": "none", "memory": "none"}],
    )
    state = PenstockState(scheme, named_parameters=model.named_parameters())
    ddp, _ = wrap(model, state, **SMALL)
    train(ddp, sgd(model), 2)
    items = [item for bucket in state.report()["buckets"] for item in bucket["items"]]
    used = {item["gradient"]: item["compressor"] for item in items}
    wanted = {n: "topk" if p.dim() > 1 else "none" for n, p in model.named_parameters()}
    assert used == wanted, used
    state.close()


def check_a_process_group_of_some_ranks() -> None:
    # The group of the DDP object, with and without a word to the state.
    members = list(range(max(1, SIZE - 1)))
    group = dist.new_group(members)
    for told in (group, None):
        if RANK in members:
            model = make_model()
            ddp = DistributedDataParallel(model, process_group=group)
            state = PenstockState(DENSE, process_group=told)
            ddp.register_comm_hook(state, ddp_hook)
            other = make_model()
            train(ddp, sgd(model))
            train(DistributedDataParallel(other, process_group=group), sgd(other))
            close(model, other, tolerance=1e-6)
            assert state.report()["world"] == len(members)
            state.close()
        dist.barrier()


def check_a_scheduler_that_defers_is_refused() -> None:
    model = make_model()
    ddp, _ = wrap(model, '[scheme]\nscheduler = "dear"\n')
    with expect(hvd.HorovodInternalError, "dear", "forward"):
        train(ddp, sgd(model), 1)


def check_uneven_inputs_with_join() -> None:
    results = []
    for hooked in (True, False):
        model = make_model()
        ddp = wrap(model, DENSE, **SMALL)[0] if hooked else DistributedDataParallel(model)
        optimizer = sgd(model)
        with ddp.join():
            for step in range(3 + RANK):
                optimizer.zero_grad()
                loss_of(ddp, *batch(step)).backward()
                optimizer.step()
        same_everywhere(model)
        results.append(model)
    close(*results, tolerance=1e-6)


if __name__ == "__main__":
    join_torch()
    run_checks(globals())
