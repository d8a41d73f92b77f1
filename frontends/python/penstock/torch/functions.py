"""Functions over many tensors or over Python objects, built from named operations."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from penstock.common.process_sets import ProcessSet, global_process_set, members_of
from penstock.torch import outstanding
from penstock.torch.collectives.allgather import allgather_rows
from penstock.torch.collectives.broadcast import broadcast_, broadcast_named_
from penstock.torch.tensors import (
    as_bytes,
    check_may_be_written,
    plain_copy,
    readable_by_address,
    write,
    zero_gradient,
)
from penstock.torch.world import rank


def _named_tensors(params: Any) -> list[tuple[str | None, Any]]:
    if isinstance(params, Mapping):
        return sorted(params.items())
    if isinstance(params, (str, bytes, torch.Tensor)) or not isinstance(params, Iterable):
        raise ValueError(f"invalid params of type: {type(params)}")
    return [one if isinstance(one, tuple) else (None, one) for one in params]


def broadcast_parameters(
    params: Any, root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Copies the parameters of `root_rank` to every rank, in place.

    params: ``model.state_dict()``, ``model.named_parameters()`` or ``model.parameters()``.
    """
    members_of(process_set)
    named = _named_tensors(params)
    outstanding.flush_all()  # outstanding updates belong to the values that are sent
    for name, tensor in named:
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(
                f"invalid params: {name!r} is a {type(tensor).__name__}, expected a torch.Tensor"
            )
        check_may_be_written(f"parameter {name}", tensor)
    copies = []
    all_sent = []
    for _, tensor in named:
        work = tensor.detach()
        if not readable_by_address(work):
            work = plain_copy(tensor)
            copies.append((tensor, work))
        all_sent.append(as_bytes(work))
    broadcast_named_(all_sent, [name for name, _ in named], root_rank, process_set)
    for tensor, work in copies:
        write(tensor.detach(), work)


class _Placeholder:
    """The place of tensor number `index` in a pickled structure."""

    def __init__(self, index: int, tensor: torch.Tensor) -> None:
        self.index = index
        self.shape = tuple(tensor.shape)
        self.dtype = tensor.dtype


def _take_out(value: Any, tensors: list[torch.Tensor]) -> Any:
    """A copy of a nested structure with placeholders for its tensors, which are appended to
    `tensors`."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Placeholder(len(tensors) - 1, value)
    if isinstance(value, dict):
        return {key: _take_out(inner, tensors) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_take_out(inner, tensors) for inner in value)
    return value


def _put_back(value: Any, tensors: dict[int, torch.Tensor]) -> Any:
    """Undoes _take_out. Makes an empty tensor for each placeholder and adds it to `tensors`, by
    index."""
    if isinstance(value, _Placeholder):
        tensors[value.index] = torch.empty(value.shape, dtype=value.dtype, device="cpu")
        return tensors[value.index]
    if isinstance(value, dict):
        return {key: _put_back(inner, tensors) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_put_back(inner, tensors) for inner in value)
    return value


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Copies the optimizer state and the options (learning rates and so on) of `root_rank` to every
    rank.

    The function takes no step: state that the root does not have yet is dropped on the other ranks
    too, and the first step makes it. Parameters never change. If the root has no state at all,
    trained parameters without a gradient get a gradient of zeros, as with Horovod's function.
    `model` is Horovod's argument (it marks sparse embeddings there) and is ignored.
    """
    del model
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    tensors: list[torch.Tensor] = []
    skeleton = _take_out(
        optimizer.state_dict(), tensors
    )  # applies deferred updates first, on every rank
    skeleton = broadcast_object(skeleton, root_rank, name="optimizer_state")
    if rank() == root_rank:
        received = skeleton
        moved = {index: tensor for index, tensor in enumerate(tensors)}
    else:
        moved = {}
        received = _put_back(skeleton, moved)
    broadcast_parameters(
        [(f"optimizer_state.{index}", moved[index]) for index in sorted(moved)], root_rank
    )
    if rank() != root_rank:
        optimizer.load_state_dict(received)
    if not received["state"]:
        _give_gradients(optimizer)


def _give_gradients(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = zero_gradient(parameter)


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the picklable object of `root_rank` on every rank; other ranks' `obj` is ignored."""
    names = (None, None) if name is None else (f"{name}.sz", f"{name}.t")
    if rank() == root_rank:
        data = torch.frombuffer(bytearray(_pickled(obj)), dtype=torch.uint8)
        length = torch.tensor([data.numel()], dtype=torch.int64, device="cpu")
        broadcast_(length, root_rank, names[0], process_set)
        broadcast_(data, root_rank, names[1], process_set)
        return obj
    nothing = torch.zeros(1, dtype=torch.int64, device="cpu")
    length = broadcast_(nothing, root_rank, names[0], process_set)
    data = torch.empty(int(length), dtype=torch.uint8, device="cpu")
    broadcast_(data, root_rank, names[1], process_set)
    return pickle.loads(data.numpy().tobytes())


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns the picklable objects of all ranks, in the order of ranks."""
    data = torch.frombuffer(bytearray(_pickled(obj)), dtype=torch.uint8)
    gathered, rows = allgather_rows(data, name, process_set)
    return [pickle.loads(part.numpy().tobytes()) for part in gathered.split(rows)]


def _pickled(obj: Any) -> bytes:
    buffer = io.BytesIO()
    pickle.dump(obj, buffer, protocol=pickle.HIGHEST_PROTOCOL)
    return buffer.getvalue()
