"""The states of all ranks that trained apart, loaded on another number of ranks.

Anchors, outer momentum and the result of an exchange are equal on all ranks, so any number of ranks
can take them. Residuals are shared out by the sets. Only the way that a rank has made alone since
its last exchange belongs to that rank, and is lost: every rank goes on from the anchors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.torch.apart import saved
from penstock.torch.apart.rounds import Rounds
from penstock.torch.state import KEY, bytes_of

LOST = (
    "parameters: the anchors; the way that each rank had made alone since its last exchange is "
    "lost (nothing is lost if the run saves after synchronize(), or after the last step of a round "
    "without fragments, delay and mix)\n"
)


def load_shards(rounds: Rounds, states: Iterable[dict[str, Any]]) -> str:
    """Restores the states that `save` returned on all ranks, in the order of their ranks, and makes
    the parameters equal to the anchors. As many states as ranks: each rank restores its own, and
    its parameters stay. Collective. Returns a line for each kind of state with its treatment.
    ValueError for states of other settings or of different steps, before anything changes."""
    if not rounds.fragments:
        return ""
    shards, size = list(states), rounds.process_set.size()
    headers = [saved.read_header(rounds, shard) for shard in shards]
    _check_headers(headers)
    if len(shards) == size:
        saved.load(rounds, shards[rounds.process_set.rank() or 0])
        return f"all: as {size} ranks have saved it, each its own\n"
    tensors = [
        [saved.tensors_of(shards[0], one, kind, rounds.outer.has_momentum) for kind in saved.KINDS]
        for one in rounds.fragments
    ]
    of_sets = [
        [bytes_of(shard.get(f"{KEY}.set.{number}"), f"{KEY}.set.{number}") for shard in shards]
        for number in range(len(rounds.fragments))
    ]
    rounds.forget()
    said = []
    for fragment, of_set, (anchors, momenta, results) in zip(rounds.fragments, of_sets, tensors):
        said += fragment.set.load_shards(of_set).splitlines(keepends=True)
        fragment.restore(anchors, momenta, results)
        if fragment.under_way:
            fragment.land(rounds.outer, 0.0)
        fragment.go_to_anchors()
    rounds.restored(headers[0]["steps"], are_equal=True)
    lines = dict.fromkeys(said)  # fragments with equal lines say them once
    return "".join(lines) + "anchors, outer momentum: as saved\n" + _way_of(headers[0])


def _way_of(header: dict[str, Any]) -> str:
    return "parameters: the anchors, as saved\n" if header.get("are_equal") else LOST


def _check_headers(headers: Sequence[dict[str, Any]]) -> None:
    if not headers:
        raise ValueError(
            "load_compression_shards got no state, expected a state of each rank that saved, in "
            "the order of the ranks"
        )
    steps = [header["steps"] for header in headers]
    if any(number != steps[0] for number in steps):
        raise ValueError(
            f"the saved states of LocalSteps were saved after the steps {steps}, expected one "
            "step: give the states of all ranks of one save"
        )
