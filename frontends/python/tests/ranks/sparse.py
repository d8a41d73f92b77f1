"""Sparse gradients against torch's own sparse training in one process."""

from __future__ import annotations

import copy
from typing import Any, Callable

import torch
from support import close, expect, run_checks, same_bits_on_all_ranks

import penstock.torch as hvd

STEPS = 4
ROWS = 23


class Words(torch.nn.Module):
    """An embedding with sparse gradients, and a dense layer."""

    def __init__(self, dense_part: bool = True) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.table = torch.nn.Embedding(ROWS, 5, sparse=True)
        self.layer = torch.nn.Linear(5, 3) if dense_part else torch.nn.Identity()

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.layer(self.table(words)).square().mean(dim=-1).mean()


def words_of(step: int, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(0, ROWS, (6,), generator=generator)


def reference(
    make: Callable[[Any], torch.optim.Optimizer],
    model: torch.nn.Module,
    left_out: tuple[int, ...] = (),
) -> torch.nn.Module:
    """The mean of the ranks' losses, in one process. left_out: ranks that use no row."""
    optimizer = make(model.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        losses = [model(words_of(step, r)) for r in range(hvd.size()) if r not in left_out]
        (sum(losses) / hvd.size()).backward()
        optimizer.step()
    return model


def train(
    optimizer: Any, model: torch.nn.Module, first: int = 0, left_out: tuple[int, ...] = ()
) -> None:
    for step in range(first, STEPS):
        optimizer.zero_grad()
        if hvd.rank() not in left_out:
            model(words_of(step, hvd.rank())).backward()
        optimizer.step()


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.5)


def adagrad(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(parameters, lr=0.1)


def sparse_adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SparseAdam(list(parameters), lr=0.05)


def check_sparse_gradients_equal_one_process() -> None:
    for make in (sgd, adagrad):
        for as_dense in (False, True):
            model = Words()
            optimizer: Any = hvd.DistributedOptimizer(
                make(model.parameters()), model.named_parameters(), sparse_as_dense=as_dense
            )
            train(optimizer, model)
            assert model.table.weight.grad.is_sparse
            close(model, reference(make, Words()))
            same_bits_on_all_ranks(model)
            names = str(optimizer.report())
            assert ("table.weight" in names) == as_dense, "the scheme sees what travels dense only"
            optimizer.close()


def check_sparse_adam_either_way() -> None:
    for as_dense in (False, True):
        model = Words(dense_part=False)
        optimizer: Any = hvd.DistributedOptimizer(
            sparse_adam(model.parameters()), model.named_parameters(), sparse_as_dense=as_dense
        )
        train(optimizer, model)
        close(model, reference(sparse_adam, Words(dense_part=False)))
        same_bits_on_all_ranks(model)
        optimizer.close()


def check_a_rank_without_sparse_gradients() -> None:
    if hvd.size() == 1:
        return
    for as_dense in (False, True):
        model = Words(dense_part=False)
        optimizer: Any = hvd.DistributedOptimizer(
            sparse_adam(model.parameters()), model.named_parameters(), sparse_as_dense=as_dense
        )
        train(optimizer, model, left_out=(0,))
        close(model, reference(sparse_adam, Words(dense_part=False), left_out=(0,)))
        same_bits_on_all_ranks(model)
        optimizer.close()


def check_sum_of_sparse_gradients() -> None:
    model = Words()
    optimizer: Any = hvd.DistributedOptimizer(
        sgd(model.parameters()), model.named_parameters(), op=hvd.Sum
    )
    model(words_of(0, hvd.rank())).backward()
    optimizer.synchronize()
    plain = Words()
    sum(plain(words_of(0, r)) for r in range(hvd.size())).backward()
    torch.testing.assert_close(
        model.table.weight.grad.to_dense(), plain.table.weight.grad.to_dense()
    )
    optimizer.close()


def check_sparse_gradients_beside_a_scheme_and_deferred_updates() -> None:
    scheme = '[scheme]\nscheduler = "dear"\nroute = "split"\n'
    model = Words()
    optimizer: Any = hvd.DistributedOptimizer(
        sgd(model.parameters()), model.named_parameters(), scheme=scheme
    )
    train(optimizer, model)
    optimizer.flush()
    close(model, reference(sgd, Words()))
    optimizer.close()


def check_a_resumed_run_knows_its_sparse_gradients() -> None:
    scheme = (
        '[scheme]\ncompressor = "topk"\nmemory = "residual"\n'
        "[compressor.topk]\ndensity = 0.2\n"
    )

    def make() -> tuple[Words, Any]:
        model = Words()
        return model, hvd.DistributedOptimizer(
            sgd(model.parameters()), model.named_parameters(), scheme=scheme
        )

    model, optimizer = make()
    for step in range(2):
        optimizer.zero_grad()
        model(words_of(step, hvd.rank())).backward()
        optimizer.step()
    saved = copy.deepcopy(
        (model.state_dict(), {**optimizer.state_dict(), **hvd.state_dict(optimizer)})
    )
    train(optimizer, model, first=2)
    resumed, other = make()
    resumed.load_state_dict(saved[0])
    other.load_state_dict(saved[1])
    train(other, resumed, first=2)
    for p, q in zip(model.parameters(), resumed.parameters()):
        assert torch.equal(p, q)
    other.close()


def check_gradients_that_become_sparse_later_are_refused() -> None:
    model = Words()
    optimizer: Any = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    model.table.sparse = False
    model(words_of(0, hvd.rank())).backward()
    optimizer.step()
    optimizer.zero_grad()
    model.table.sparse = True
    model(words_of(1, hvd.rank())).backward()
    with expect(ValueError, "table.weight", "sparse_as_dense=True"):
        optimizer.step()


if __name__ == "__main__":
    hvd.init()
    run_checks(globals())
