"""One step late (apply = "previous"): DistributedOptimizer against delayed training in plain
torch."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from late_support import DENSE, RATE, STEPS, TOP_K, MeanOfTopK, Tensors
from late_support import backward, dense_mean, near, oracle, train, wrap
from support import expect, loss_of, make_batch, make_model, mine, run_checks
from support import same_bits_on_all_ranks

import penstock.torch as hvd
from penstock import _library as c

def check_equals_delayed_training() -> None:
    for scheme, mean_of in ((DENSE, dense_mean), (TOP_K, MeanOfTopK())):
        model = make_model()
        optimizer = wrap(model, scheme)
        train(model, optimizer, 0, STEPS)
        near(model, oracle(mean_of))
        same_bits_on_all_ranks(model)
        optimizer.flush()
        after = dense_mean if scheme is DENSE else MeanOfTopK()
        near(model, oracle(after, with_last=True))
        assert optimizer.counters()["steps"] == STEPS
        optimizer.flush()  # nothing is left
        near(model, oracle(dense_mean if scheme is DENSE else MeanOfTopK(), with_last=True))
        optimizer.close()


def check_the_first_step_changes_nothing_and_the_second_applies_its_mean() -> None:
    model = make_model()
    start = [p.detach().clone() for p in model.parameters()]
    optimizer = wrap(model, DENSE)
    train(model, optimizer, 0, 1)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), start))
    assert all(p.grad is None for p in model.parameters())
    train(model, optimizer, 1, 2)
    assert not any(torch.equal(p, q) for p, q in zip(model.parameters(), start))
    near(model, oracle(dense_mean, 2))


def check_other_optimizers_groups_and_schedulers_get_the_mean_of_the_step_before() -> None:
    def make(model: torch.nn.Module) -> torch.optim.Optimizer:
        wide = [p for p in model.parameters() if p.dim() > 1]
        rest = [p for p in model.parameters() if p.dim() <= 1]
        groups = [{"params": wide, "weight_decay": 0.1}, {"params": rest}]
        return torch.optim.AdamW(groups, lr=0.01)

    model, plain = make_model(), make_model()
    optimizer, other = wrap(model, DENSE, inner=make(model)), make(plain)
    rates = [torch.optim.lr_scheduler.StepLR(o, step_size=2, gamma=0.5) for o in (optimizer, other)]
    before: Tensors | list[None] = [None] * 6
    for step in range(STEPS):
        train(model, optimizer, step, step + 1)
        loss = loss_of(plain, *make_batch(step, 4 * hvd.size()))
        gradients = list(torch.autograd.grad(loss, list(plain.parameters())))
        for parameter, gradient in zip(plain.parameters(), before):
            parameter.grad = gradient
        other.step()
        before = gradients
        for rate in rates:
            rate.step()
    for a, b in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def check_gradients_that_are_zeroed_in_place_or_added_over_passes_arrive_too() -> None:
    model = make_model()
    optimizer = wrap(model, DENSE)
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        backward(model, step)
        optimizer.step()
    near(model, oracle(dense_mean))

    model = make_model()
    optimizer = wrap(model, DENSE, backward_passes_per_step=2)
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in (0, 1):
            x, y = make_batch(step, 4 * hvd.size())
            (loss_of(model, mine(x).chunk(2)[part], mine(y).chunk(2)[part]) / 2).backward()
        optimizer.step()
    near(model, oracle(dense_mean))


def check_predivided_and_half_precision_gradients_arrive_too() -> None:
    model = make_model()
    optimizer = wrap(model, DENSE, gradient_predivide_factor=float(2 * hvd.size()))
    train(model, optimizer, 0, STEPS)
    near(model, oracle(dense_mean))
    model = make_model()
    optimizer = wrap(model, DENSE, compression=hvd.Compression.fp16)
    train(model, optimizer, 0, STEPS)
    for a, b in zip(model.parameters(), oracle(dense_mean).parameters()):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-3)


def check_a_gradient_that_only_one_rank_computes_is_averaged_with_zeros() -> None:
    parameters = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    inner = torch.optim.SGD(parameters, lr=1.0)
    optimizer = hvd.DistributedOptimizer(inner, scheme=DENSE)
    for _ in range(2):
        optimizer.zero_grad()
        own = parameters if hvd.rank() == 0 else parameters[:1]
        sum(p.sum() for p in own).backward()
        optimizer.step()
    assert torch.equal(parameters[0], torch.zeros(3))
    torch.testing.assert_close(parameters[1].detach(), torch.full((3,), 1 - 1 / hvd.size()))


def check_clipping_changes_the_mean_that_is_applied() -> None:
    model = make_model()
    optimizer = wrap(model, DENSE)
    norms = []
    for step in range(3):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.synchronize()
        optimizer.synchronize()  # a second call does nothing
        own = [p.grad.detach().clone() for p in model.parameters() if p.grad is not None]
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)))
        before = [p.detach().clone() for p in model.parameters()]
        with optimizer.skip_synchronize():
            optimizer.step()
        for parameter, old, gradient in zip(model.parameters(), before, own):
            torch.testing.assert_close(parameter.detach(), old - RATE * 1e-3 / norms[-1] * gradient)
    assert norms[0] == 0 and norms[1] > 0.01


def check_a_rank_steps_and_runs_forward_while_its_gradients_wait_for_the_others() -> None:
    """Rank 0 comes through step t and the forward of t + 1 before the others compute their
    gradients of step t. An exchange at once would never end here."""
    model = make_model()
    optimizer = wrap(model, DENSE)
    train(model, optimizer, 0, 2)
    came_through = Path(os.environ["TMPDIR"]) / "came_through"
    if hvd.rank() == 0:
        train(model, optimizer, 2, 3)
        assert optimizer._exchange.set.phase == c.PHASE_DEFERRED
        optimizer.zero_grad()
        x, y = make_batch(3, 4 * hvd.size())
        loss = loss_of(model, mine(x), mine(y))
        came_through.touch()
        loss.backward()
        optimizer.step()
    else:
        while not came_through.exists():
            time.sleep(0.01)
        train(model, optimizer, 2, 4)
    near(model, oracle(dense_mean, 4))


# ---- steps that are thrown away ----


def check_a_mean_that_is_not_finite_comes_a_step_later_and_leaves_finite_residuals() -> None:
    model = make_model()
    optimizer = wrap(model, TOP_K)
    thrown = []
    for step in range(STEPS):
        optimizer.zero_grad()
        x, y = make_batch(step, 4 * hvd.size())
        factor = float("nan") if step == 2 and hvd.rank() == hvd.size() - 1 else 1.0
        (loss_of(model, mine(x), mine(y)) * factor).backward()
        optimizer.synchronize()
        own = [p.grad for p in model.parameters() if p.grad is not None]
        if all(torch.isfinite(gradient).all() for gradient in own):
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            thrown.append(step)
            optimizer.zero_grad()
            optimizer.compression_state_dict()
    assert thrown == [3], thrown
    optimizer.flush()
    assert all(torch.isfinite(p).all() for p in model.parameters())
    same_bits_on_all_ranks(model)


def check_memories_can_be_let_go_and_reset() -> None:
    model = make_model()
    optimizer = wrap(model, TOP_K)
    for act in (optimizer.let_go, optimizer.reset_compression_state):
        train(model, optimizer, 0, 3)
        act()
        before = [p.detach().clone() for p in model.parameters()]
        train(model, optimizer, 3, 4)
        assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before)), "a mean was left"
    train(model, optimizer, 4, 6)
    same_bits_on_all_ranks(model)


def check_what_cannot_be_done_is_refused() -> None:
    model = make_model()
    optimizer = wrap(model, DENSE)
    train(model, optimizer, 0, 2)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(loss_of(model, *make_batch(2, 4))).backward()
    for act, words in (
        (lambda: optimizer.step(lambda: 0.0), "closure"),
        (optimizer.skip_step, "optimizer.let_go()"),
        (lambda: optimizer.set_grad_scale(8.0), "bfloat16"),
        (lambda: scaler.unscale_(optimizer), "scheme.apply"),
    ):
        with expect(ValueError, words):
            act()
    with expect(AssertionError, "flush()"):
        optimizer.flush()
    optimizer.step()
    optimizer.close()
    with expect(ValueError, "sparse_as_dense=True"):
        wrap(make_model(), DENSE, sparse_as_dense=True)
    with expect(hvd.HorovodInternalError, "leaves work for the next forward", "remove the key"):
        wrap(make_model(), DENSE + 'scheduler = "dear"\nroute = "split"\n')
    with expect(hvd.HorovodInternalError, "use DistributedOptimizer of penstock.torch"):
        hvd.LocalSteps(torch.optim.SGD(make_model().parameters(), lr=RATE), every=2, scheme=DENSE)
    table = torch.nn.Embedding(4, 3, sparse=True)
    optimizer = wrap(table, DENSE)
    table(torch.tensor([1])).sum().backward()
    with expect(ValueError, "sparse=False"):
        optimizer.step()


def check_a_mean_that_one_rank_alone_throws_away_is_an_error_on_every_rank() -> None:
    if hvd.size() == 1:
        return
    model = make_model()
    optimizer = wrap(model, DENSE)
    with expect(
        hvd.HorovodInternalError, "means of 16 steps that the optimizer has applied: 15", ": 14"
    ):
        for step in range(20):
            backward(model, step)
            optimizer.synchronize()
            if step == 9 and hvd.rank() == hvd.size() - 1:
                optimizer.zero_grad()
            else:
                optimizer.step()


if __name__ == "__main__":
    hvd.init()
    run_checks(globals())
