"""The state of ranks that train apart, on one rank: tensors by name, beside the keys of the user's
optimizer. An exchange under way is saved with its results, which its landing will apply."""

from __future__ import annotations

import json
from typing import Any

import torch

from penstock.torch.apart.fragment import Fragment, values_of
from penstock.torch.apart.rounds import Rounds
from penstock.torch.state import KEY, bytes_of, tensor_of

KINDS = ("anchors", "momenta", "results")
_MAY_DIFFER = ("steps", "are_equal")


def save(rounds: Rounds) -> dict[str, torch.Tensor]:
    """Returns the state of this rank, in memory of its own. Waits for an exchange under way, which
    goes on afterwards."""
    rounds.take_anchors()
    rounds.wait()
    found = {KEY: tensor_of(json.dumps(_header_of(rounds)).encode())}
    for number, fragment in enumerate(rounds.fragments):
        found[f"{KEY}.set.{number}"] = tensor_of(fragment.set.save())
        for kind in KINDS:
            for (name, _), tensor in zip(fragment.named, getattr(fragment, kind)):
                found[f"{KEY}.{kind}.{name}"] = tensor.clone()
    return found


def load(rounds: Rounds, saved: dict[str, Any]) -> None:
    """Restores a state that `save` returned on this rank; throws an exchange under way away. Every
    rank must call it. ValueError for the state of other settings or of another model, before
    anything changes."""
    header = read_header(rounds, saved)
    tensors = [
        [tensors_of(saved, fragment, kind, rounds.outer.has_momentum) for kind in KINDS]
        for fragment in rounds.fragments
    ]
    states = [bytes_of(saved.get(key), key) for key in _set_keys(rounds)]
    rounds.forget()
    for fragment, state, (anchors, momenta, results) in zip(rounds.fragments, states, tensors):
        fragment.set.load(state)
        fragment.restore(anchors, momenta, results)
    rounds.restored(header["steps"], bool(header.get("are_equal")))


def read_header(rounds: Rounds, saved: Any) -> dict[str, Any]:
    """The header of a saved state. ValueError for the state of other settings, of another model, or
    of a rank on the other side of the process set."""
    header = _parsed_header(saved)
    expected = _header_of(rounds)
    if bool(header.get("parameters")) != bool(rounds.fragments):
        here, there = ("in", "outside") if rounds.fragments else ("outside", "in")
        raise ValueError(
            f"this rank is {here} the process set of LocalSteps, and the saved state belongs to a "
            f"rank {there} the set; each rank loads the state that it saved"
        )
    for name, value in expected.items():
        if name not in _MAY_DIFFER and header.get(name) != value:
            raise ValueError(
                f"the saved state of LocalSteps has {name} {header.get(name)!r}, expected "
                f"{value!r}: make the optimizer with the arguments of the run that saved, or leave "
                'out the keys that begin with "penstock" to start a new round'
            )
    return header


def _set_keys(rounds: Rounds) -> list[str]:
    return [f"{KEY}.set.{number}" for number in range(len(rounds.fragments))]


def _header_of(rounds: Rounds) -> dict[str, Any]:
    rotation = rounds.rotation
    return {
        "steps": rounds.steps,
        "are_equal": rounds.are_equal,
        "every": rotation.every,
        "fragments": rotation.fragments,
        "delay": rotation.delay,
        "momentum": rounds.outer.has_momentum,
        "parameters": [[name for name, _ in fragment.named] for fragment in rounds.fragments],
    }


def _parsed_header(saved: Any) -> dict[str, Any]:
    data = bytes_of(saved.get(KEY) if isinstance(saved, dict) else None, KEY)
    try:
        header = json.loads(data)
    except (ValueError, RecursionError):
        header = None
    steps = header.get("steps") if isinstance(header, dict) else None
    if type(steps) is not int or steps < 0:
        raise ValueError(
            f'the bytes under the key "{KEY}" were not saved by LocalSteps; expected the state '
            "that optimizer.compression_state_dict() returned on this rank"
        )
    return header


def tensors_of(
    saved: dict[str, Any], fragment: Fragment, kind: str, has_momentum: bool
) -> list[torch.Tensor]:
    """The saved tensors of one kind, by parameter; empty if the state has none of the kind."""
    keys = [f"{KEY}.{kind}.{name}" for name, _ in fragment.named]
    is_due = kind == "anchors" or (kind == "momenta" and has_momentum)
    if not is_due and not any(key in saved for key in keys):
        return []
    for key, (_, parameter) in zip(keys, fragment.named):
        expected = tuple(values_of(parameter).shape)
        tensor = saved.get(key)
        is_tensor = isinstance(tensor, torch.Tensor)
        if not is_tensor or tuple(tensor.shape) != expected or not tensor.is_floating_point():
            found = f"{tensor.dtype} of shape {tuple(tensor.shape)}" if is_tensor else "nothing"
            raise ValueError(
                f'the saved state of LocalSteps has {found} under the key "{key}", expected floats '
                f"of shape {expected}: it was saved with another model, or is incomplete"
            )
    return [saved[key] for key in keys]
