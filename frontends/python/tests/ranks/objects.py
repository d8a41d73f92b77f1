"""Parameters, optimizer state and Python objects from one rank to all ranks."""

from __future__ import annotations

import torch
from support import begin, equal, expect, loss_of, make_batch, make_model, run_checks

import penstock.torch as hvd


class Buffers(torch.nn.Module):
    """Parameters and buffers of several types and layouts."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = torch.nn.Parameter(torch.randn(4, 3, generator=generator))
        self.transposed = torch.nn.Parameter(torch.randn(4, 3, generator=generator).t())
        self.register_buffer("mask", torch.rand(5, generator=generator) > 0.5)
        self.register_buffer("count", torch.tensor(seed))
        self.register_buffer("empty", torch.zeros(0))
        self.register_buffer("small", torch.randn(3, generator=generator).half())


def check_broadcast_parameters() -> None:
    for root in (0, hvd.size() - 1):
        expected = Buffers(root)
        for choose in (
            lambda m: m.state_dict(),
            lambda m: list(m.named_parameters()),
            lambda m: m.named_parameters(),
        ):
            model = Buffers(hvd.rank())
            hvd.broadcast_parameters(choose(model), root_rank=root)
            for name, parameter in model.named_parameters():
                equal(parameter.detach(), dict(expected.named_parameters())[name].detach())
        model = Buffers(hvd.rank())
        hvd.broadcast_parameters(model.state_dict(), root_rank=root)
        for name, tensor in model.state_dict().items():
            equal(tensor, expected.state_dict()[name])
    for wrong in (3, "text", torch.ones(2), [("name", 3)]):
        with expect(ValueError, "invalid params"):
            hvd.broadcast_parameters(wrong, root_rank=0)


def check_broadcast_object() -> None:
    message = {"rank": hvd.rank(), "nested": [1, ("x", None)], "text": "é" * (1000 * hvd.rank())}
    for root in range(hvd.size()):
        got = hvd.broadcast_object(
            message if hvd.rank() == root else None, root_rank=root, name=f"object{root}"
        )
        assert got == {"rank": root, "nested": [1, ("x", None)], "text": "é" * (1000 * root)}
    assert hvd.broadcast_object(hvd.rank() + 5) == 5


def check_allgather_object_of_ragged_sizes() -> None:
    got = hvd.allgather_object(list(range(hvd.rank() * 500)), name="lists")
    assert got == [list(range(r * 500)) for r in range(hvd.size())]
    assert hvd.allgather_object(None) == [None] * hvd.size()


def train(optimizer: torch.optim.Optimizer, model: torch.nn.Module, steps: int) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, *make_batch(step, 6)).backward()
        optimizer.step()


def check_broadcast_optimizer_state() -> None:
    makers = [
        lambda p, r: torch.optim.SGD(p, lr=0.1 * (r + 1), momentum=0.9, weight_decay=0.1),
        lambda p, r: torch.optim.Adam(
            p, lr=0.01 * (r + 1), betas=(0.9 - 0.1 * r, 0.99), amsgrad=True
        ),
        lambda p, r: torch.optim.Adagrad(p, lr=0.1),
    ]
    for make in makers:
        # The root has state (as after a restart), and the other ranks do not.
        expected = make_model()
        reference = make(expected.parameters(), 0)
        train(reference, expected, 3)
        model = make_model()
        optimizer = make(model.parameters(), hvd.rank())
        if hvd.rank() == 0:
            train(optimizer, model, 3)
        before = [p.clone() for p in model.parameters()]
        hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=model)
        for p, kept in zip(model.parameters(), before):
            equal(p.detach(), kept.detach())
        got, wanted = optimizer.state_dict(), reference.state_dict()
        assert got["param_groups"] == wanted["param_groups"]
        assert got["state"].keys() == wanted["state"].keys()
        for index, entries in wanted["state"].items():
            for key, entry in entries.items():
                if isinstance(entry, torch.Tensor):
                    equal(got["state"][index][key], entry)
                else:
                    assert got["state"][index][key] == entry


def check_state_the_root_lacks_is_dropped_and_weights_stay() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.5)
    if hvd.rank() != 0:
        train(optimizer, model, 1)
    before = [p.clone() for p in model.parameters()]
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for p, kept in zip(model.parameters(), before):
        equal(p.detach(), kept.detach())
    assert not any(state.get("momentum_buffer") is not None for state in optimizer.state.values())
    with expect(ValueError, "LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(model.parameters()), root_rank=0)


def check_where_the_root_has_no_state_gradients_are_there_as_after_horovods() -> None:
    model = make_model()
    frozen, *trained = model.parameters()
    frozen.requires_grad_(False)
    given = torch.ones_like(trained[-1])
    trained[-1].grad = given
    hvd.broadcast_optimizer_state(torch.optim.SGD(model.parameters(), lr=0.1), root_rank=0)
    assert frozen.grad is None
    for p in trained[:-1]:
        equal(p.grad, torch.zeros_like(p))
    assert trained[-1].grad is given


def check_every_rank_runs_the_same_code_paths() -> None:
    paths = hvd.allgather_object(hvd.report()["code_paths"])
    assert "" in paths[0] and "select" in paths[0], paths[0]
    assert all(other == paths[0] for other in paths), paths


if __name__ == "__main__":
    begin()
    run_checks(globals())
