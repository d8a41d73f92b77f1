"""The state of compression (residuals, factors, step index, plan) as a state dict: one tensor of
bytes per rank.

Residuals belong to their rank. Save them on every rank, restore each rank's own, and never
broadcast them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from penstock.torch.exchange import GradientExchange

KEY = "penstock"
# The gradients that are exchanged sparse, outside the set. The key exists only if there are some.
SPARSE_KEY = "penstock.sparse"
# Means that an optimizer will apply one step late, each by the name of its gradient (late.py).
MEAN_KEY = "penstock.mean."
MEANS_KEY = "penstock.means"  # the number of these means


def is_ours(key: Any) -> bool:
    """True for the keys that `compression_state_dict()` adds to the state of an optimizer."""
    return isinstance(key, str) and (key == KEY or key.startswith(f"{KEY}."))


def without_means(state: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """The saved state without the means, and the means by the names of their gradients."""
    if not isinstance(state, dict):
        return state, {}
    is_mean = {key: isinstance(key, str) and key.startswith(MEAN_KEY) for key in state}
    rest = {key: value for key, value in state.items() if not is_mean[key]}
    return rest, {key[len(MEAN_KEY) :]: state[key] for key in state if is_mean[key]}


def save(exchange: GradientExchange) -> dict[str, torch.Tensor]:
    """Returns the state of an exchange on this rank. It contains nothing of a step that is not
    over. HorovodInternalError after a failure inside a step."""
    exchange.conclude()
    if exchange.outcome.stepped:
        exchange.end()  # another optimizer of these parameters has stepped
    saved = {KEY: tensor_of(exchange.set.save())}
    if exchange.sparse:
        saved[SPARSE_KEY] = tensor_of(json.dumps(exchange.sparse).encode())
    return saved


def load(exchange: GradientExchange, state: dict[str, torch.Tensor]) -> None:
    """Restores a state that `save` returned. ValueError for other data; HorovodInternalError for
    the state of another rank or another model."""
    refuse_means(state)
    data = bytes_of(state.get(KEY) if isinstance(state, dict) else None, KEY)
    sparse = json.loads(bytes_of(state[SPARSE_KEY], SPARSE_KEY)) if SPARSE_KEY in state else {}
    if sparse != exchange.sparse:
        exchange.leave_out(sparse)
    exchange.set.load(data)


def load_shards(exchange: GradientExchange, states: Sequence[dict[str, torch.Tensor]]) -> str:
    """Restores the states that `save` returned on all ranks of a run, in the order of its ranks.
    Collective. Returns a line for each kind of state with its treatment. Errors are those of
    `load`."""
    if exchange.sparse or any(SPARSE_KEY in state for state in states):
        raise ValueError(
            "gradients that are exchanged sparse have no state to share; load each rank's own on "
            "as many ranks, or pass sparse_as_dense=True"
        )
    for state in states:
        refuse_means(state)
    return exchange.set.load_shards([bytes_of(state.get(KEY), KEY) for state in states])


def warn_of_lost_means(state: Any, n_means: int) -> None:
    """Says that means are missing with which the state was saved."""
    n_saved = int(state.get(MEANS_KEY, 0)) if isinstance(state, dict) else 0
    if n_saved == 0 or n_means != 0:
        return
    print(
        f"penstock warning: the loaded state was saved with {n_saved} means that the next step "
        f'would apply (keys "{MEAN_KEY}NAME"), and they are missing, so the next step applies '
        "none: a checkpoint library has left them out, or has filled only the keys that it got",
        file=sys.stderr,
        flush=True,
    )


def refuse_means(state: Any) -> None:
    """ValueError if the state has means that no optimizer would apply."""
    means = without_means(state)[1]
    if means:
        raise ValueError(
            f'the saved state has the key "{MEAN_KEY}{next(iter(means))}", a mean that the next '
            'step must apply, but this optimizer has no scheme.apply = "previous": load it with '
            "that key, or call optimizer.flush() before the save"
        )


def warn_of_empty(state: Any, of: str) -> None:
    """Says that a loaded state of `of` has nothing in it. A state is empty before the first
    backward."""
    if state:
        return
    print(
        f"penstock warning: the state of {of} loaded on this rank is empty, so residuals and "
        "factors start from zero. It was saved before the first backward, or a checkpoint "
        "library has filled only the keys that it got, as torch.distributed.checkpoint does: "
        "docs/ddp.md has a recipe",
        file=sys.stderr,
        flush=True,
    )


def tensor_of(data: bytes) -> torch.Tensor:
    if not data:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def bytes_of(data: Any, key: str) -> bytes:
    if not isinstance(data, torch.Tensor) or data.dtype != torch.uint8:
        raise ValueError(
            f"the state of compression is {_shape_of(data)}, expected a uint8 tensor under the key "
            f'"{key}"'
        )
    return data.detach().cpu().contiguous().numpy().tobytes()


def _shape_of(data: Any) -> str:
    if isinstance(data, torch.Tensor):
        return f"a tensor of {data.dtype}"
    return "missing" if data is None else f"a {type(data).__name__}"


def state_dict(optimizer: Any) -> dict[str, torch.Tensor]:
    """Calls ``optimizer.compression_state_dict()`` of a DistributedOptimizer."""
    return optimizer.compression_state_dict()


def load_state_dict(optimizer: Any, state: dict[str, torch.Tensor]) -> None:
    """Calls ``optimizer.load_compression_state_dict(state)`` of a DistributedOptimizer."""
    optimizer.load_compression_state_dict(state)
