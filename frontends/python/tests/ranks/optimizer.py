"""DistributedOptimizer against a single process that sees the whole batch."""

from __future__ import annotations

import warnings
from typing import Any, Callable

import torch
from support import close, expect, loss_of, make_batch, make_model, mine, needs_torch, run_checks
from support import same_bits_on_all_ranks

import penstock.torch as hvd

STEPS = 5


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


def reference(
    make: Callable[[torch.nn.Module], torch.optim.Optimizer] = sgd,
    change: Callable[[torch.nn.Module], Any] | None = None,
    scale: float = 1.0,
) -> torch.nn.Module:
    """Trains on whole batches without penstock. change: changes gradients before the step."""
    model = make_model()
    optimizer = make(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        (loss_of(model, *make_batch(step, 4 * hvd.size())) * scale).backward()
        if change is not None:
            change(model)
        optimizer.step()
    return model


def train(
    optimizer: torch.optim.Optimizer, model: torch.nn.Module, steps: int = STEPS, scale: float = 1.0
) -> torch.nn.Module:
    for step in range(steps):
        optimizer.zero_grad()
        x, y = make_batch(step, 4 * hvd.size())
        (loss_of(model, mine(x), mine(y)) * scale).backward()
        optimizer.step()
    return model


def wrap(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None, **options: Any
) -> Any:
    return hvd.DistributedOptimizer(
        optimizer or sgd(model), named_parameters=model.named_parameters(), **options
    )


def check_equals_large_batch_training() -> None:
    makers = [
        sgd,
        lambda m: torch.optim.Adam(m.parameters(), lr=0.01),
        lambda m: torch.optim.Adagrad(m.parameters()),
    ]
    for make in makers:
        model = make_model()
        optimizer = wrap(model, make(model))
        assert (
            isinstance(optimizer, type(make(model)))
            and type(optimizer).__name__ == type(make(model)).__name__
        )
        train(optimizer, model)
        close(model, reference(make))
        same_bits_on_all_ranks(model)
        counters = optimizer.counters()
        assert counters["steps"] == STEPS
        # float32 sums without compression: both counts are equal, except for a few bytes of flags.
        assert counters["dense_moved_bytes"] <= counters["moved_bytes"]
        assert bool(counters["dense_moved_bytes"]) == (hvd.size() > 1)
        optimizer.close()


def check_generated_names_and_parameter_groups() -> None:
    model = make_model()
    layers = [model[0], model[2], model[4]]
    groups = [{"params": layer.parameters(), "lr": 0.1 / (i + 1)} for i, layer in enumerate(layers)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(groups, lr=0.1))
    train(optimizer, model)
    plain = make_model()
    groups = [{"params": plain[2 * i].parameters(), "lr": 0.1 / (i + 1)} for i in range(3)]
    other = torch.optim.SGD(groups, lr=0.1)
    for step in range(STEPS):
        other.zero_grad()
        loss_of(plain, *make_batch(step, 4 * hvd.size())).backward()
        other.step()
    close(model, plain)


def check_sum_predivide_and_fp16() -> None:
    model = make_model()
    train(wrap(model, op=hvd.Sum), model, scale=1.0 / hvd.size())
    close(model, reference())
    model = make_model()
    train(wrap(model, gradient_predivide_factor=float(hvd.size())), model)
    close(model, reference())
    model = make_model()
    train(wrap(model, compression=hvd.Compression.fp16), model)
    # float16 keeps 11 bits of each gradient: 5e-4 relative, times learning rate and steps.
    close(model, reference(), tolerance=2e-3)
    same_bits_on_all_ranks(model)


class Doubling:
    """A user's compressor that changes values, shape and layout and undoes it."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Any:
        return (tensor * 2).reshape(-1, 1).expand(-1, 2), tensor.shape

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return (tensor[:, 1] / 2).reshape(ctx)


class Renaming:
    """A user's compressor whose shape depends on values."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Any:
        return tensor[tensor == 0].reshape(-1), None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


def check_compressors_of_users() -> None:
    model = make_model()
    train(wrap(model, compression=Doubling), model)
    close(model, reference())
    with expect(ValueError, "compression"):
        wrap(model, compression="topk")
    model = make_model()
    optimizer = wrap(model, compression=Renaming)
    loss_of(model, *make_batch(0, 4)).backward()
    with expect(ValueError, "compressor gave shape"):
        optimizer.synchronize()
    optimizer.reset_compression_state()


def check_backward_passes_per_step() -> None:
    model = make_model()
    optimizer = wrap(model, backward_passes_per_step=2)
    for step in range(STEPS):
        optimizer.zero_grad()
        x, y = make_batch(step, 4 * hvd.size())
        for half in range(2):
            (loss_of(model, mine(x)[half::2], mine(y)[half::2]) / 2).backward()
        optimizer.step()
    close(model, reference())
    optimizer.zero_grad()
    for _ in range(2):
        loss_of(model, *make_batch(0, 4)).backward()
    with expect(AssertionError, "Gradients were computed more than backward_passes_per_step times"):
        loss_of(model, *make_batch(0, 4)).backward()
    # That backward has changed gradients during their exchange, so ranks might differ from here on.
    with expect(AssertionError, "was changed"):
        optimizer.step()
    optimizer.close()
    model = make_model()
    optimizer = wrap(model, backward_passes_per_step=2)
    optimizer.set_backward_passes_per_step(1)
    assert optimizer.backward_passes_per_step == 1
    optimizer.zero_grad()
    loss_of(model, *make_batch(0, 4)).backward()
    # A step after fewer passes than announced averages the present gradients.
    optimizer.step()
    optimizer.set_backward_passes_per_step(3)
    optimizer.zero_grad()
    x, y = make_batch(1, 4 * hvd.size())
    loss_of(model, mine(x), mine(y)).backward()
    optimizer.synchronize()
    plain = make_model()
    plain.load_state_dict(model.state_dict())
    loss_of(plain, x, y).backward()
    for p, q in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-5, atol=1e-6)


class Branches(torch.nn.Module):
    """Uses either layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.left, self.right = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)

    def forward(self, x: torch.Tensor, left: bool) -> torch.Tensor:
        return self.left(x) if left else self.right(x)


def check_a_parameter_unused_on_some_ranks() -> None:
    model, plain = Branches(), Branches()
    optimizer = wrap(model)
    other = sgd(plain)
    for step in range(STEPS):
        x, y = make_batch(step, 4 * hvd.size())
        optimizer.zero_grad()
        loss_of(lambda rows: model(rows, left=hvd.rank() == 0), mine(x), mine(y)).backward()
        optimizer.step()
        other.zero_grad()
        parts = zip(x.chunk(hvd.size()), y.chunk(hvd.size()))
        losses = [
            loss_of(lambda rows, r=r: plain(rows, left=r == 0), a, b)
            for r, (a, b) in enumerate(parts)
        ]
        (sum(losses) / hvd.size()).backward()
        for p in plain.parameters():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad  # as in a world of one
        other.step()
    close(model, plain)
    same_bits_on_all_ranks(model)


def check_clipping_and_skip_synchronize() -> None:
    model = make_model()
    optimizer = wrap(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(STEPS):
            optimizer.zero_grad()
            x, y = make_batch(step, 4 * hvd.size())
            loss_of(model, mine(x), mine(y)).backward()
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            with optimizer.skip_synchronize():
                optimizer.step()
    close(model, reference(change=lambda m: torch.nn.utils.clip_grad_norm_(m.parameters(), 0.05)))
    assert optimizer.counters()["steps"] == STEPS


def check_warning_after_an_explicit_synchronize() -> None:
    model = make_model()
    optimizer = wrap(model)
    loss_of(model, *make_batch(0, 4)).backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
    texts = [str(w.message) for w in caught if w.category is UserWarning]
    assert (
        len(texts) == 1
        and "optimizer.step() called without optimizer.skip_synchronize()" in texts[0]
    ), texts


def check_zero_grad_between_backward_and_step() -> None:
    model = make_model()
    optimizer = wrap(model)
    loss_of(model, *make_batch(0, 4)).backward()
    with expect(AssertionError, "optimizer.zero_grad() was called after loss.backward()"):
        optimizer.zero_grad()
    with optimizer.skip_synchronize(), expect(AssertionError, "synchronize"):
        optimizer.step()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert all(not p.grad.any() for p in model.parameters())
    optimizer.zero_grad(set_to_none=True)
    assert all(p.grad is None for p in model.parameters())


def check_skipped_steps_leave_parameters_alone() -> None:
    model = make_model()
    optimizer = wrap(model)
    for step in range(STEPS):
        x, y = make_batch(step, 4 * hvd.size())
        for attempt in range(3):  # skipped twice: by skip_step() and by zero_grad()
            optimizer.zero_grad()
            optimizer.set_grad_scale(2.0**attempt)
            (loss_of(model, mine(x), mine(y)) * 2.0**attempt).backward()
            optimizer.synchronize()
            if attempt == 0:
                optimizer.skip_step()
        for p in model.parameters():
            p.grad.div_(4.0)
        with optimizer.skip_synchronize():
            optimizer.step()
    close(model, reference())
    counted = optimizer.counters()
    assert (counted["steps"], counted["forgotten_steps"]) == (STEPS, 2 * STEPS), counted


@needs_torch((2, 3), "GradScaler for the CPU")
def check_grad_scaler_recipe() -> None:
    model = make_model()
    optimizer = wrap(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    skipped = 0
    for step in [0, -1, 1, 2, 3, 4]:
        optimizer.zero_grad()
        x, y = make_batch(abs(step), 4 * hvd.size())
        factor = float("inf") if step == -1 and hvd.rank() == 0 else 1.0
        optimizer.set_grad_scale(scaler.get_scale())
        scaler.scale(loss_of(model, mine(x), mine(y)) * factor).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        before = scaler.get_scale()
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
    assert skipped == 1, "an infinite gradient on one rank must skip the step on every rank"
    close(model, reference())


def check_closures_and_schedulers() -> None:
    model = make_model()
    inner = sgd(model)
    scheduler = torch.optim.lr_scheduler.StepLR(inner, step_size=2, gamma=0.5)
    optimizer = wrap(model, inner)
    plain = make_model()
    other = sgd(plain)
    other_scheduler = torch.optim.lr_scheduler.StepLR(other, step_size=2, gamma=0.5)
    for step in range(STEPS):
        x, y = make_batch(step, 4 * hvd.size())

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, mine(x), mine(y))
            loss.backward()
            return loss

        assert torch.isfinite(optimizer.step(closure))
        other.zero_grad()
        loss_of(plain, x, y).backward()
        other.step()
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # schedulers warn when they think that no step was taken
            scheduler.step()
            other_scheduler.step()
    close(model, plain)


class Strange(torch.nn.Module):
    """Gradients that are transposed, sparse, scalar, empty."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.table = torch.nn.Embedding(11, 5, sparse=True)
        self.conv = torch.nn.Conv2d(2, 4, 3).to(memory_format=torch.channels_last)
        self.scale = torch.nn.Parameter(torch.tensor(1.5))
        self.empty = torch.nn.Parameter(torch.zeros(0, 3))

    def forward(self, rows: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        return (
            self.table(rows).sum() * self.scale
            + self.conv(images).square().sum()
            + self.empty.sum()
        ) / len(rows)


def check_layouts_and_sparse_gradients() -> None:
    model, plain = Strange(), Strange()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.01), sparse_as_dense=True)
    other = torch.optim.SGD(plain.parameters(), lr=0.01)
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        rows = torch.randint(0, 11, (2 * hvd.size(),), generator=generator)
        images = torch.randn(2 * hvd.size(), 2, 6, 6, generator=generator).to(
            memory_format=torch.channels_last
        )
        optimizer.zero_grad()
        model(mine(rows), mine(images)).backward()
        optimizer.step()
        other.zero_grad()
        plain(rows, images).backward()
        other.step()
    close(model, plain)


def check_create_graph_is_refused() -> None:
    model = make_model()
    optimizer = wrap(model)
    with warnings.catch_warnings(), expect(AssertionError, "create_graph"):
        warnings.simplefilter("ignore")  # torch warns of the reference cycle that this makes
        loss_of(model, *make_batch(0, 4)).backward(create_graph=True)
    for p in model.parameters():
        p.grad = None
    optimizer.close()


if __name__ == "__main__":
    hvd.init()
    run_checks(globals())
