"""ddp_hook follows DistributedDataParallel's rules for communication hooks, compared with
torch's own averages and with DistributedOptimizer."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
import torch.distributed as dist
from ddp_support import (
    DENSE,
    DGC,
    RANK,
    SIZE,
    STEPS,
    TOPK,
    bits_of,
    ends_of,
    part,
    plain_ddp,
    same_bits,
    same_everywhere,
    sgd,
    train,
    wrap,
)
from support import (
    close,
    expect,
    loss_of,
    make_batch,
    make_model,
    mine,
    needs_torch,
    run_checks,
)
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_wrapper
from torch.nn.parallel import DistributedDataParallel

import penstock.torch as hvd
from penstock.torch import PenstockState, bucket_exchange, buckets, ddp_hook

SMALL = {"bucket_cap_mb": 0.0002}  # several buckets of a few parameters


# ---- E1: register_comm_hook ----


def check_e1_hook_registers_once_and_is_a_plain_function_with_real_annotations() -> None:
    assert ddp_hook.__qualname__ == "ddp_hook" and list(inspect.signature(ddp_hook).parameters)[
        1
    ] == "bucket"
    assert ddp_hook.__annotations__["bucket"] is dist.GradBucket
    ddp = DistributedDataParallel(make_model())
    ddp.register_comm_hook(state=PenstockState(DENSE), hook=ddp_hook)  # as Lightning calls it
    with expect(RuntimeError, "only be called once"):
        ddp.register_comm_hook(PenstockState(DENSE), ddp_hook)


def check_e1_means_are_the_hooks_affair_under_every_option() -> None:
    for options in (
        {},
        SMALL,
        {"gradient_as_bucket_view": True, **SMALL},
        {"find_unused_parameters": True, **SMALL},
        {"static_graph": True, **SMALL},
        {"static_graph": True, "gradient_as_bucket_view": True},
    ):
        model = make_model()
        ddp, state = wrap(model, DENSE, **options)
        train(ddp, sgd(model, momentum=0.9))
        close(model, plain_ddp(**options), tolerance=1e-6)
        same_everywhere(model)
        state.step_end()
        assert state.counters()["steps"] == STEPS
        state.close()


def check_e1_hook_under_a_wrapper_of_torchs() -> None:
    model = make_model()
    ddp = DistributedDataParallel(model, **SMALL)
    state = PenstockState(TOPK)
    ddp.register_comm_hook(state, fp16_compress_wrapper(ddp_hook))
    train(ddp, sgd(model))
    assert state.counters()["gradient_bytes"] == (STEPS - 1) * 2 * sum(
        p.numel() for p in model.parameters()
    )
    same_everywhere(model)
    state.close()


def check_e1_no_sync_does_not_call_the_hook_and_accumulates() -> None:
    def accumulate(ddp: Any, model: torch.nn.Module) -> None:
        optimizer = sgd(model)
        for step in range(STEPS):
            optimizer.zero_grad()
            for half in range(2):
                x, y = make_batch(2 * step + half, 4 * SIZE)
                if half == 0:
                    with ddp.no_sync():
                        loss_of(ddp, part(x), part(y)).backward()
                else:
                    loss_of(ddp, part(x), part(y)).backward()
            optimizer.step()

    model, other = make_model(), make_model()
    ddp, state = wrap(model, DENSE, **SMALL)
    accumulate(ddp, model)
    state.step_end()
    assert state.counters()["steps"] == STEPS
    accumulate(DistributedDataParallel(other), other)
    close(model, other, tolerance=1e-6)
    state.close()


@needs_torch((2, 3), "other buckets for this model after the first step")
def check_e1_rebuilt_buckets_are_followed_and_keep_residuals() -> None:
    runs = []
    for follows in (True, False):
        model = make_model()
        ddp, state = wrap(model, TOPK, **SMALL)
        optimizer = sgd(model)
        train(ddp, optimizer, 1)
        before = planned(state)
        if not follows:
            state._exchange.set.set_given_buckets = lambda buckets: None  # type: ignore[union-attr]
        train(ddp, optimizer, 7, first=1)
        assert (planned(state) != before) == follows, "DDP put its buckets together as before"
        runs.append(bits_of(model))
        state.close()
    same_bits(*runs)


def planned(state: PenstockState) -> list[list[str]]:
    """The gradients of each bucket of the plan."""
    buckets = state.report()["buckets"]
    return [sorted(item["gradient"] for item in bucket["items"]) for bucket in buckets]


def check_e1_compiled_ddp_is_refused_in_words() -> None:
    with expect(NotImplementedError, "compiled", "python_reducer"):
        ddp_hook(PenstockState(DENSE), (0, torch.ones(3)))  # type: ignore[arg-type]


# ---- E2: GradBucket ----


def check_e2_a_sparse_bucket_goes_past_the_scheme() -> None:
    def make() -> torch.nn.Module:
        torch.manual_seed(5)
        return torch.nn.Sequential(
            torch.nn.Embedding(11, 6, sparse=True), torch.nn.Linear(6, 3), torch.nn.Linear(3, 2)
        )

    results = []
    for hooked in (True, False):
        model = make()
        ddp = wrap(model, DENSE)[0] if hooked else DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for step in range(4):
            optimizer.zero_grad()
            words = (torch.arange(6) * (step + 1) + 3 * RANK) % 11
            ddp(words).square().mean().backward()
            optimizer.step()
        results.append(model)
    close(*results, tolerance=1e-6)


def check_e2_gradients_in_another_layout_travel_as_they_lie() -> None:
    def make() -> torch.nn.Module:
        torch.manual_seed(6)
        layers = [torch.nn.Conv2d(4, 6, 3), torch.nn.ReLU(), torch.nn.Conv2d(6, 2, 3)]
        return torch.nn.Sequential(*layers).to(memory_format=torch.channels_last)

    results = []
    for hooked in (True, False):
        model = make()
        ddp, state = wrap(model, DENSE) if hooked else (DistributedDataParallel(model), None)
        optimizer = sgd(model)
        for step in range(4):
            optimizer.zero_grad()
            generator = torch.Generator().manual_seed(10 * step + RANK)
            images = torch.randn(2, 4, 7, 7, generator=generator)
            ddp(images.to(memory_format=torch.channels_last)).square().mean().backward()
            optimizer.step()
        if state is not None:
            assert list(state._exchange._views[0].shape) == [6, 3, 3, 4]
        results.append(model)
    close(*results, tolerance=1e-6)


def check_e2_a_bucket_that_is_not_readable_by_address_goes_through_a_copy() -> None:
    readable = buckets.readable_by_address
    buckets.readable_by_address = lambda tensor, place: False
    try:
        model = make_model()
        ddp, state = wrap(model, DENSE, **SMALL)
        train(ddp, sgd(model, momentum=0.9))
    finally:
        buckets.readable_by_address = readable
    close(model, plain_ddp(), tolerance=1e-6)
    state.close()


# ---- E4: abilities that torch's PowerSGDState does not have ----


def check_e4_a_gradient_that_is_not_finite_does_not_stay_in_the_residual() -> None:
    model = make_model()
    ddp, state = wrap(model, TOPK, **SMALL)
    optimizer = sgd(model)
    train(ddp, optimizer, 3)
    (ddp(make_batch(0, 4)[0]).sum() * (float("inf") if RANK == 0 else 1.0)).backward()
    assert all(p.grad is not None for p in model.parameters())
    assert not all(p.grad.isfinite().all() for p in model.parameters())  # on every rank
    train(ddp, optimizer, 3)
    assert all(p.isfinite().all() for p in model.parameters())
    same_everywhere(model)
    state.close()


def check_e4_a_pickled_state_goes_on_where_it_was() -> None:
    import pickle

    model = make_model()
    ddp, state = wrap(model, TOPK, **SMALL)
    optimizer = sgd(model)
    train(ddp, optimizer, 5)
    bits, kept = copy.deepcopy(model.state_dict()), pickle.dumps(state)
    train(ddp, optimizer, 5, first=5)
    expected = bits_of(model)
    state.close()
    model.load_state_dict(bits)
    del ddp
    ddp, state = wrap(model, pickle.loads(kept), **SMALL)
    train(ddp, sgd(model), 5, first=5)
    same_bits(bits_of(model), expected)
    state.close()


# ---- against DistributedOptimizer ----


def check_hvd_and_the_hook_give_the_same_parameters() -> None:
    for scheme in (TOPK, DGC, DENSE):
        hooked = make_model()
        ddp, state = wrap(hooked, scheme, **SMALL)
        train(ddp, sgd(hooked), 10)
        state.close()
        wrapped = make_model()
        optimizer: Any = hvd.DistributedOptimizer(
            sgd(wrapped), named_parameters=wrapped.named_parameters(), scheme=scheme
        )
        for step in range(10):
            optimizer.zero_grad()
            x, y = make_batch(step, 4 * SIZE)
            loss_of(wrapped, mine(x), mine(y)).backward()
            optimizer.step()
        optimizer.close()
        if scheme is DENSE and SIZE > 2:
            # Order of summation follows the buckets: some 1e-7 of each gradient.
            close(hooked, wrapped, tolerance=1e-6)
        else:
            same_bits(bits_of(hooked), bits_of(wrapped))


def check_a_step_that_no_optimizer_took_is_forgotten_as_by_skip_step() -> None:
    hooked = make_model()
    ddp, state = wrap(hooked, TOPK, **SMALL)
    inner = sgd(hooked)
    train(ddp, inner, 1)
    applied = ends_of(state)
    wrapped = make_model()
    optimizer: Any = hvd.DistributedOptimizer(
        sgd(wrapped), named_parameters=wrapped.named_parameters(), scheme=TOPK
    )
    for step in range(8):
        x, y = make_batch(step, 4 * SIZE)
        if step > 0:
            inner.zero_grad()
            loss_of(ddp, part(x), part(y)).backward()
        optimizer.zero_grad()
        loss_of(wrapped, part(x), part(y)).backward()
        if step % 3 == 2:
            optimizer.skip_step()
            continue
        if step > 0:
            inner.step()
        optimizer.step()
    assert applied == [True, True, False, True, True, False, True], applied
    same_bits(bits_of(hooked), bits_of(wrapped))
    state.close()
    optimizer.close()


# ---- mistakes, in words ----


def check_a_state_for_two_models_is_refused() -> None:
    first, second = make_model(), make_model()
    ddp, state = wrap(first, DENSE)
    train(ddp, sgd(first), 1)
    other, _ = wrap(second, state)
    with expect(ValueError, "a PenstockState for each DistributedDataParallel"):
        train(other, sgd(second), 1)


def check_momentum_that_the_memory_owns_is_refused_before_the_optimizer_steps() -> None:
    model = make_model()
    ddp, state = wrap(model, DGC)
    before = bits_of(model)
    with expect(hvd.HorovodInternalError, "momentum"):
        train(ddp, sgd(model, momentum=0.9), 1)
    same_bits(bits_of(model), before)
    state.close()


def check_averaging_twice_is_refused() -> None:
    model = make_model()
    optimizer: Any = hvd.DistributedOptimizer(
        sgd(model), named_parameters=model.named_parameters(), scheme=DENSE
    )
    ddp, _ = wrap(model, DENSE)
    x, y = make_batch(0, 4 * SIZE)
    with expect(ValueError, "averaged twice"):
        loss_of(ddp, part(x), part(y)).backward()
    optimizer.close()


def check_names_and_ranks_and_states_that_do_not_fit_are_refused() -> None:
    with expect(ValueError, "expected a PenstockState"):
        ddp_hook(None, None)  # type: ignore[arg-type]
    with expect(ValueError, "seen no backward"):
        PenstockState(DENSE).report()
    model = make_model()
    ddp, _ = wrap(model, PenstockState(DENSE, named_parameters=make_model().named_parameters()))
    with expect(ValueError, "lacks 6 of the 6"):
        train(ddp, sgd(model), 1)
    size, buckets.world.size = buckets.world.size, lambda: SIZE + 1
    try:
        with expect(ValueError, f"of {SIZE} for torch", f"of {SIZE + 1} for Pen", "penstock run"):
            buckets.check_world(None)
    finally:
        buckets.world.size = size
    with expect(ValueError, bucket_exchange.BUCKETS_KEY):
        ddp, state = wrap(make_model(), DENSE)
        state.load_state_dict({"penstock": torch.zeros(3, dtype=torch.uint8)})
        train(ddp, sgd(ddp), 1)


if __name__ == "__main__":
    from ddp_support import join_torch

    join_torch()
    run_checks(globals())
