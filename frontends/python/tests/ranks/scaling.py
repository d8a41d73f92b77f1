"""Loss scaling, clipping, and changes of gradients during their exchange: torch's own loops and
Horovod's loops, against one process with the whole batch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable

import torch
from support import (
    close,
    expect,
    loss_of,
    make_batch,
    make_model,
    mine,
    needs_torch,
    run_checks,
    same_bits_on_all_ranks,
)

import penstock.torch as hvd

STEPS = 6
BAD_STEP = 2  # rank 0's loss is infinite
CLIP = 0.05
Maker = Callable[[Any], torch.optim.Optimizer]


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def fused_sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, fused=True)


def fused_adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01, fused=True)


def new_scaler() -> Any:
    return torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)


def loss_at(step: int, model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    factor = float("inf") if step == BAD_STEP and hvd.rank() == 0 else 1.0
    return loss_of(model, x, y) * factor


def reference(make: Maker, clip: bool) -> tuple[torch.nn.Module, list[float]]:
    """One process with whole batches and a scaler skips the corresponding steps."""
    model = make_model()
    optimizer = make(model.parameters())
    scaler = new_scaler()
    scales = []
    for step in range(STEPS):
        optimizer.zero_grad()
        x, y = make_batch(step, 4 * hvd.size())
        loss = loss_of(model, x, y) * (float("inf") if step == BAD_STEP else 1.0)
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return model, scales


def trained(
    make: Maker, one_step: Callable[[Any, Any, Any], None], **options: Any
) -> tuple[torch.nn.Module, list[float]]:
    """`one_step(model, optimizer, scaler)` comes after backward."""
    model = make_model()
    optimizer: Any = hvd.DistributedOptimizer(
        make(model.parameters()), model.named_parameters(), **options
    )
    scaler = new_scaler()
    scales = []
    with no_warnings():
        for step in range(STEPS):
            optimizer.zero_grad()
            x, y = make_batch(step, 4 * hvd.size())
            scaler.scale(loss_at(step, model, mine(x), mine(y))).backward()
            one_step(model, optimizer, scaler)
            scaler.update()
            scales.append(scaler.get_scale())
    assert optimizer.counters()["steps"] in (STEPS, STEPS - 1)  # the last step may still be open
    optimizer.close()
    return model, scales


@contextmanager
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def plain_step(model: Any, optimizer: Any, scaler: Any) -> None:
    scaler.step(optimizer)


def unscale_clip_step(model: Any, optimizer: Any, scaler: Any) -> None:
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    scaler.step(optimizer)


def horovods_recipe(model: Any, optimizer: Any, scaler: Any) -> None:
    optimizer.synchronize()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    with optimizer.skip_synchronize():
        scaler.step(optimizer)


@needs_torch((2, 3), "GradScaler for the CPU")
def check_torchs_own_scaling_loops() -> None:
    for make in (sgd, fused_sgd, fused_adam):
        for one_step, clip in (
            (plain_step, False),
            (unscale_clip_step, True),
            (horovods_recipe, True),
        ):
            model, scales = trained(make, one_step)
            expected, expected_scales = reference(make, clip)
            close(model, expected)
            same_bits_on_all_ranks(model)
            assert scales == expected_scales, f"{make.__name__}, {one_step.__name__}: {scales}"
            assert set(scales) == {512.0, 1024.0}, "the scale went down and up again"


@needs_torch((2, 3), "GradScaler for the CPU")
def check_scaling_under_deferred_updates() -> None:
    scheme = '[scheme]\nscheduler = "dear"\nroute = "split"\n'
    for one_step, clip in ((plain_step, False), (unscale_clip_step, True)):
        model, scales = trained(sgd, one_step, scheme=scheme)
        expected, expected_scales = reference(sgd, clip)
        close(model, expected)
        assert scales == expected_scales


@needs_torch((2, 3), "GradScaler for the CPU")
def check_autocast() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        model = make_model()
        optimizer: Any = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
        plain = make_model()
        other = sgd(plain.parameters())
        scalers = [new_scaler(), new_scaler()]
        for step in range(STEPS):
            x, y = make_batch(step, 4 * hvd.size())
            for net, its, scaler, rows in (
                (model, optimizer, scalers[0], (mine(x), mine(y))),
                (plain, other, scalers[1], (x, y)),
            ):
                its.zero_grad()
                with torch.autocast("cpu", dtype=dtype):
                    loss = loss_of(lambda a, net=net: net(a).float(), *rows)
                scaler.scale(loss).backward()
                scaler.unscale_(its)
                torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
                scaler.step(its)
                scaler.update()
        # Gradients of half precision keep 8 (11) bits. There are five small steps of a clipped
        # norm.
        close(model, plain, tolerance=2e-3)
        same_bits_on_all_ranks(model)
        optimizer.close()


@needs_torch((2, 3), "GradScaler for the CPU")
def check_a_scale_that_was_not_told_is_named_once_where_residuals_are_kept() -> None:
    scheme = (
        '[scheme]\ncompressor = "topk"\nmemory = "residual"\n'
        "[compressor.topk]\ndensity = 0.3\n"
    )
    for is_named in (False, True):
        model = make_model()
        optimizer: Any = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), scheme=scheme
        )
        scaler = new_scaler()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step in range(3):
                optimizer.zero_grad()
                if is_named:
                    optimizer.set_grad_scale(scaler.get_scale())
                loss = loss_of(model, *map(mine, make_batch(step, 4 * hvd.size())))
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        texts = [str(w.message) for w in caught]
        assert len(texts) == (0 if is_named else 1), texts
        assert is_named or "set_grad_scale" in texts[0]
        optimizer.close()


def gradients_under_way() -> tuple[torch.nn.Module, Any]:
    model = make_model()
    optimizer: Any = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    for step in range(2):  # the first step sends its gradients late
        optimizer.step()
        optimizer.zero_grad()
        loss_of(model, *map(mine, make_batch(step, 4 * hvd.size()))).backward()
    return model, optimizer


@needs_torch((2, 3), "GradScaler for the CPU")
def check_changed_on_their_way_gradients_are_an_error_with_the_remedy() -> None:
    def clip_norm(model: torch.nn.Module) -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)

    def clip_value(model: torch.nn.Module) -> None:
        torch.nn.utils.clip_grad_value_(model.parameters(), CLIP)

    def replace(model: torch.nn.Module) -> None:
        for p in model.parameters():
            p.grad = p.grad / 2

    def drop(model: torch.nn.Module) -> None:
        model.zero_grad()

    for change in (clip_norm, clip_value, replace, drop):
        for wait in ("step", "synchronize"):
            model, optimizer = gradients_under_way()
            change(model)
            with expect(AssertionError, "0.weight", "synchronize()", "skip_synchronize"):
                getattr(optimizer, wait)()
            optimizer.close()
    # The first step also raises the error.
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    loss_of(model, *map(mine, make_batch(0, 4 * hvd.size()))).backward()
    clip_norm(model)
    with expect(AssertionError, "0.weight"):
        optimizer.step()


@needs_torch((2, 3), "GradScaler for the CPU")
def check_between_local_passes_gradients_may_be_changed() -> None:
    model = make_model()
    optimizer: Any = hvd.DistributedOptimizer(
        sgd(model.parameters()), model.named_parameters(), backward_passes_per_step=2
    )
    plain = make_model()
    other = sgd(plain.parameters())
    for step in range(3):
        x, y = make_batch(step, 4 * hvd.size())
        for net, its, rows in ((model, optimizer, (mine(x), mine(y))), (plain, other, (x, y))):
            its.zero_grad()
            loss_of(net, *rows).backward()
            for p in net.parameters():
                p.grad.mul_(0.5)
            loss_of(net, *rows).backward()
            its.step()
    close(model, plain)


if __name__ == "__main__":
    hvd.init()
    run_checks(globals())
