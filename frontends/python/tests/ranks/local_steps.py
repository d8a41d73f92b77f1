"""LocalSteps: ranks train apart, and what they exchange is what the papers say."""

from __future__ import annotations

import random
import time
from typing import Any

import local_steps_errors
import torch
from local_steps_oracle import Simulation, Way
from local_steps_support import (
    AVERAGE,
    STREAM,
    TOPK,
    anchors_are_equal,
    batch_of,
    copied,
    drift,
    end,
    inner_of,
    make_model,
    train,
    train_once,
    wrap,
    wrap_for,
)
from support import close, loss_of, make_batch, mine, run_checks, same_bits_on_all_ranks

import penstock.torch as hvd


# ---- the numbers ----


def check_a_round_of_one_step_equals_averaged_gradients() -> None:
    model, plain = make_model(), make_model()
    optimizer = wrap(model, inner_of(model, "sgd"), every=1, outer=AVERAGE)
    reference = inner_of(plain, "sgd")
    for step in range(8):
        x, y = make_batch(step, 6 * hvd.size())
        optimizer.zero_grad()
        loss_of(model, mine(x), mine(y)).backward()
        optimizer.step()
        reference.zero_grad()
        loss_of(plain, x, y).backward()
        reference.step()
    close(model, plain)
    same_bits_on_all_ranks(model)
    end(optimizer)


def expect_the_simulation(way: Way, steps: int, name: str, **arguments: Any) -> None:
    model = make_model()
    optimizer = wrap_for(way, model, inner_of(model, name), **arguments)
    train(model, optimizer, 0, steps)
    models = [make_model() for _ in range(hvd.size())]
    inner = [inner_of(one, name) for one in models]
    expected = Simulation(
        models, lambda rank, step: train_once(models[rank], inner[rank], rank, step), way
    )
    expected.run(steps)
    for key, anchor in optimizer.anchors().items():
        torch.testing.assert_close(anchor, expected.anchors[key], rtol=0, atol=1e-6)
    close(model, models[hvd.rank()], 1e-6)
    moved = max(
        (a - p).abs().max().item()
        for a, p in zip(optimizer.anchors().values(), make_model().parameters())
    )
    assert moved > 0.01, f"the anchors moved by {moved}: the comparison says nothing"
    end(optimizer)


def check_rounds_of_thirty_steps_equal_a_simulation() -> None:
    expect_the_simulation(Way(every=30), 65, "adamw")
    expect_the_simulation(Way(every=30, density=0.25), 95, "adamw")


def check_every_outer_step_equals_a_simulation() -> None:
    expect_the_simulation(Way(every=5, lr=1.0, momentum=0.0, nesterov=False), 12, "sgd")
    expect_the_simulation(Way(every=5, lr=0.5, momentum=0.8, nesterov=False), 22, "sgd")


def check_streaming_equals_a_simulation() -> None:
    expect_the_simulation(Way(every=12, fragments=3, delay=2, mix=0.5), 41, "adamw")
    expect_the_simulation(Way(every=12, fragments=3, delay=2, mix=0.0), 41, "sgd")
    expect_the_simulation(Way(every=10, fragments=3, delay=1, mix=0.25, density=0.25), 45, "sgd")
    expect_the_simulation(Way(every=7, fragments=2, delay=2), 31, "sgd", anchors="cpu")


def check_anchors_are_equal_to_the_bit_under_random_delays() -> None:
    model = make_model()
    optimizer = wrap(model, **{**STREAM, "every": 6, "delay": 1}, scheme=TOPK)
    delays = random.Random(hvd.rank())
    for step in range(24):
        time.sleep(delays.choice((0, 0, 0.002, 0.01)))
        train_once(model, optimizer, hvd.rank(), step)
        if step % 2 == 1:  # between two landings too
            anchors_are_equal(optimizer)
    optimizer.synchronize()
    same_bits_on_all_ranks(model)
    end(optimizer)


def check_synchronize_after_a_round_moves_no_anchor() -> None:
    model = make_model()
    optimizer = wrap(model, every=3, outer=hvd.OuterStep(lr=0.7, momentum=0.9))
    train(model, optimizer, 0, 6)
    before, exchanges = copied(optimizer.anchors()), optimizer.counters()["steps"]
    optimizer.synchronize()  # a drift of zero would let the momentum move them
    for name, anchor in optimizer.anchors().items():
        assert torch.equal(anchor, before[name])
    assert optimizer.counters()["steps"] == exchanges
    train(model, optimizer, 6, 7)
    optimizer.synchronize()  # inside a round there is a drift
    assert optimizer.counters()["steps"] == exchanges + 1
    same_bits_on_all_ranks(model)
    end(optimizer)


def check_an_exchange_under_way_holds_nobody_up() -> None:
    model = make_model()
    optimizer = wrap(model, every=2, delay=1)
    train(model, optimizer, 0, 1)
    if hvd.rank() == 0:
        train(model, optimizer, 1, 2)  # starts; the others start only after this rank's next call
    hvd.allreduce(torch.zeros(1), name="rank 0 has started")
    if hvd.rank() != 0:
        train(model, optimizer, 1, 2)
    train(model, optimizer, 2, 3)
    anchors_are_equal(optimizer)
    end(optimizer)


# ---- the inner loop ----


def check_a_scaler_and_clipping_leave_the_ranks_together() -> None:
    steps = 8
    models = [make_model(), make_model()]
    optimizers = [wrap(one, inner_of(one, "sgd"), every=4) for one in models]
    for unscales, (model, optimizer) in enumerate(zip(models, optimizers)):
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for step in range(steps):
            optimizer.zero_grad()
            x, y = batch_of(hvd.rank(), step)
            scaler.scale(loss_of(model, x, y)).backward()
            if step == 2 and hvd.rank() == 0:  # only this rank leaves its step out
                next(model.parameters()).grad.fill_(float("inf"))
            if unscales:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1e6)
            before = copied(model.state_dict())
            scaler.step(optimizer)
            scaler.update()
            if step == 2 and hvd.rank() == 0:
                assert torch.equal(before["0.weight"], models[unscales].get_parameter("0.weight"))
        assert optimizer.report()["steps"] == steps
        anchors_are_equal(optimizer)
    close(models[0], models[1], 1e-6)  # the scale was a power of two
    reference = make_model()
    plain = wrap(reference, inner_of(reference, "sgd"), every=4)
    for step in range(steps):
        if step == 2 and hvd.rank() == 0:
            plain.zero_grad()
            plain.step()
        else:
            train_once(reference, plain, hvd.rank(), step)
    close(models[0], reference, 1e-6)
    for optimizer in (*optimizers, plain):
        end(optimizer)


def check_a_frozen_parameter_stays_and_moves_again_when_it_is_unfrozen() -> None:
    model = make_model()
    frozen = model.get_parameter("2.weight").requires_grad_(False)
    before = frozen.clone()
    optimizer = wrap(model, every=3, scheme=TOPK)
    train(model, optimizer, 0, 7)
    assert torch.equal(frozen, before), "a frozen parameter moved"
    frozen.requires_grad_(True)
    train(model, optimizer, 7, 12)
    assert not torch.equal(frozen, before), "an unfrozen parameter stayed"
    optimizer.synchronize()
    same_bits_on_all_ranks(model)
    end(optimizer)


def check_tied_weights_travel_once() -> None:
    model = make_model()
    model[2].bias = model[0].bias
    optimizer = wrap(model, every=2, fragments=2)
    assert "2.bias" not in optimizer.anchors() and "0.bias" in optimizer.anchors()
    train(model, optimizer, 0, 4)
    optimizer.synchronize()
    same_bits_on_all_ranks(model)
    assert model[2].bias is model[0].bias
    end(optimizer)


def check_named_sums_of_the_inner_loop_go_their_own_way() -> None:
    model = make_model()
    optimizer = wrap(model, **STREAM, scheme=TOPK)
    for step in range(18):
        train_once(model, optimizer, hvd.rank(), step)
        total = hvd.allreduce(torch.tensor([float(step + hvd.rank())]), name="loss", op=hvd.Sum)
        assert total.item() == sum(step + rank for rank in range(hvd.size()))
    anchors_are_equal(optimizer)
    end(optimizer)


def check_sixteen_bit_parameters_have_anchors_of_thirty_two() -> None:
    model = make_model(torch.bfloat16)
    inner = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer = wrap(model, inner, every=1, outer=hvd.OuterStep(lr=0.003, momentum=0.0))
    first = copied(optimizer.anchors())
    assert all(anchor.dtype == torch.float32 for anchor in first.values())
    drift(model, 1)
    optimizer.step()  # a small outer step, which bfloat16 rounds
    moved = copied(optimizer.anchors())
    assert any(not torch.equal(moved[key], moved[key].bfloat16().float()) for key in moved)
    for _ in range(3):  # the rounded rest is no drift
        optimizer.step()
    assert all(torch.equal(anchor, moved[key]) for key, anchor in optimizer.anchors().items())
    end(optimizer)


def check_to_go_back_to_a_state_without_rounds_is_a_new_start() -> None:
    def started(model: Any) -> Any:
        return wrap(model, every=3, delay=1, scheme=TOPK)

    model, fresh = make_model(), make_model()
    optimizer = started(model)
    best, best_inner = copied(model.state_dict()), copied(optimizer.state_dict())
    train(model, optimizer, 0, 7)  # with an exchange under way
    model.load_state_dict(best)
    optimizer.load_state_dict(best_inner)
    train(model, optimizer, 0, 7)
    other = started(fresh)
    train(fresh, other, 0, 7)
    for key, value in fresh.state_dict().items():
        assert torch.equal(value, model.state_dict()[key]), f"{key}: something is left of before"
    end(optimizer)
    end(other)


def check_a_closure_and_a_schedule_of_the_inner_loop_work() -> None:
    model = make_model()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), every=2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for step in range(4):
        x, y = batch_of(hvd.rank(), step)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, x, y)
            loss.backward()
            return loss

        assert optimizer.step(closure).item() > 0
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.025
    optimizer.outer = hvd.OuterStep(lr=0.3)
    train(model, optimizer, 4, 6)
    assert optimizer.counters()["steps"] == 3
    anchors_are_equal(optimizer)
    end(optimizer)


if __name__ == "__main__":
    hvd.init()
    run_checks({**vars(local_steps_errors), **globals()})
