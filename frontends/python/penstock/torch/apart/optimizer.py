"""LocalSteps: wraps any torch optimizer, which then trains alone on each rank. After every H steps
the ranks exchange the distance that their parameters have moved."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch

from penstock._library import COUNTER_NAMES
from penstock.common.process_sets import ProcessSet, global_process_set
from penstock.common.rotation import Rotation
from penstock.torch import loss_scaling, ownership, world
from penstock.torch.adopted import adopt
from penstock.torch.apart import saved, shards
from penstock.torch.apart.outer import OuterStep, outer_of
from penstock.torch.apart.rounds import Rounds
from penstock.torch.checks import Named, check_process_set, name_parameters
from penstock.torch.scheme import Scheme
from penstock.torch.settings import scheme_text
from penstock.torch.state import KEY


# torch.compile leaves these functions out: it would trace every call to the runtime. The public
# torch.compiler.disable would import the compiler at once.
_not_compiled = getattr(torch, "_disable_dynamo", lambda function: function)


class _LocalSteps:
    """The methods that LocalSteps adds to the user's optimizer class. ``super()`` here is the
    user's optimizer."""

    _rounds: Rounds

    # Makes torch's GradScaler call step() also if it has found an infinity, so that all ranks count
    # the same steps. The gradients of the ranks differ, so their infinities do too.
    _step_supports_amp_scaling = True

    @property
    def outer(self) -> OuterStep:
        """The outer step. Assign another one, on every rank, to change its learning rate."""
        return self._rounds.outer

    @outer.setter
    def outer(self, outer: OuterStep | None) -> None:
        self._rounds.use(outer_of(outer))

    @_not_compiled
    def step(self, closure: Any = None) -> Any:
        """Takes the step of the user's optimizer on this rank. If a fragment is due, then starts
        its exchange or applies its result."""
        rounds = self._rounds
        if not rounds.alive:
            raise ValueError(
                "the exchange of this LocalSteps has ended, by close() or hvd.shutdown(): wrap the "
                "optimizer again, after hvd.init()"
            )
        rounds.before_step()
        loss = None
        if not loss_scaling.leaves_out(self):
            given = () if closure is None else (closure,)
            loss = super().step(*given)  # type: ignore[misc]
        rounds.after_step()
        return loss

    @_not_compiled
    def synchronize(self) -> None:
        """Ends all rounds now, so that every rank holds equal parameters: at the end of training,
        or before a model is evaluated or saved. Costs a full exchange. Collective."""
        self._rounds.synchronize()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Raises ValueError, because the ranks agree on the parameters when the optimizer is
        made."""
        del param_group
        raise ValueError(
            "LocalSteps takes no further parameter groups; add them to the optimizer before it is "
            "wrapped"
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state that ``state_dict()`` returned. If ``compression_state_dict()`` was added
        to it, also loads the state of the rounds. Otherwise a new round starts: the parameters of
        the next step become the anchors, without outer momentum and residuals. Call it on every
        rank."""
        own = {key: value for key, value in state_dict.items() if not _is_ours(key)}
        ours = {key: value for key, value in state_dict.items() if _is_ours(key)}
        super().load_state_dict(own)  # type: ignore[misc]
        if ours:
            self.load_compression_state_dict(ours)
        else:
            self._rounds.start_anew()

    def compression_state_dict(self) -> dict[str, torch.Tensor]:
        """Returns the state of the rounds on this rank: anchors, outer momentum, place in the
        round, an exchange under way, and the state of compression. Their keys begin with
        "penstock". Each rank saves and loads its own, with its own parameters. The tensors are
        copies, so another thread may write them while training goes on."""
        return saved.save(self._rounds)

    def load_compression_state_dict(self, state_dict: dict[str, torch.Tensor]) -> None:
        """Restores a state that ``compression_state_dict()`` returned on this rank. With the
        parameters of that moment the next steps equal the steps after the save. Every rank must
        call it. ValueError if the arguments of LocalSteps or the model were others."""
        saved.load(self._rounds, state_dict)

    def load_compression_shards(self, states: Iterable[dict[str, torch.Tensor]]) -> str:
        """Restores the states that ``compression_state_dict()`` returned on all ranks of a run, in
        the order of its ranks; that run may have had another number of ranks. Then the parameters
        become the anchors, and what each rank had changed since its last exchange is lost: save
        after ``synchronize()`` to lose nothing. Collective, with equal states on every rank.
        Returns a line for each kind of state with its treatment."""
        return shards.load_shards(self._rounds, states)

    def anchors(self) -> dict[str, torch.Tensor]:
        """Returns the anchors by the names of their parameters: the model that is equal on all
        ranks at any time. They are the tensors in use; do not change them. Empty on a rank outside
        the process set."""
        return self._rounds.anchors()

    def report(self) -> dict[str, Any]:
        """Returns the place in the round, and the plan and counters of each fragment's set. From
        the second round on also, in seconds, ``step_s`` (a step without exchanges) and ``wait_s``
        (the longest of the last waits for an exchange), and ``delay_that_hides``, the number of
        steps that hides such an exchange."""
        rounds = self._rounds
        reports = [fragment.set.report() for fragment in rounds.fragments]
        place = {"steps": rounds.steps, "every": rounds.rotation.every}
        return place | rounds.pace.report() | {"fragments": reports}

    def counters(self) -> dict[str, int]:
        """Returns totals over all fragments: steps (exchanges of a fragment), payload_bytes,
        moved_bytes and so on."""
        totals = dict.fromkeys(COUNTER_NAMES, 0)
        for fragment in self._rounds.fragments:
            for name, value in fragment.set.counters().items():
                totals[name] += value
        return totals

    def close(self) -> None:
        """Ends the exchange: an exchange under way is thrown away, and ``step()`` is refused from
        now on. Call ``synchronize()`` before it to end with equal parameters. Every rank must call
        it."""
        self._rounds.close()


def LocalSteps(  # noqa: N802 - a class to its user, like DistributedOptimizer
    optimizer: torch.optim.Optimizer,
    *,
    every: int,
    outer: OuterStep | None = OuterStep(),
    scheme: str | Scheme | None = None,
    fragments: int = 1,
    delay: int = 0,
    mix: float = 0.0,
    anchors: str | None = None,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Wraps a torch optimizer that trains alone on each rank. After every `every` steps the ranks
    average the distance between parameters and anchors, and the outer step updates the anchors.
    Collective.

    optimizer: the returned optimizer takes over its options and its state and must be used instead
        of it from now on. Nothing is sent in backward, so clipping, accumulation, learning-rate
        schedulers and loss scalers work as on one process.
    every: the number of steps in a round (H).
    outer: the outer step; by default DiLoCo's Nesterov step. None averages the parameters (Local
        SGD).
    scheme: a Scheme, TOML text or the path of a .toml file: how the distance travels. Without it
        the configuration's scheme. Its memory must have no momentum if `outer` has one.
    fragments: the number of parts (F) that travel in turn, one every H / F steps. Layer l belongs
        to part l mod F. It needs `named_parameters`.
    delay: the number of steps during which an exchange may travel, below H / F. With 0, ``step()``
        waits for it.
    mix: when a result is applied, a parameter becomes mix * parameter + (1 - mix) * anchor.
    anchors: "cpu" keeps anchors and outer momentum in host memory; None keeps them beside the
        parameters.
    named_parameters: usually ``model.named_parameters()``; names and order must be equal on every
        rank. Without it the parameters are named by their place in the optimizer.
    process_set: the ranks that exchange with each other. Every rank of the world may make the
        optimizer; on a rank outside the set it acts like the user's optimizer.

    Returns an instance of a class that derives from the optimizer's class and has its name. All
    parameters of the optimizer take part. A parameter without ``requires_grad`` is left alone while
    it stays so. Buffers of the model, such as the statistics of batch normalization, do not take
    part. The parameters must be equal on all ranks at the first step.

    Papers: Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019; Douillard et al.,
    "DiLoCo", 2023; Douillard et al., "Streaming DiLoCo with overlapping communication", 2025.
    ValueError for wrong arguments; HorovodInternalError if ranks disagree."""
    rotation = Rotation(every, fragments, delay)
    outer = outer_of(outer)
    _check_mix_and_anchors(mix, anchors)
    process_set = global_process_set if process_set is None else process_set
    check_process_set(process_set)
    named = _named(optimizer, named_parameters, fragments)
    _warn_of_second_weights(optimizer)
    exchanged = [parameter for _, parameter in named] if process_set.included() else []
    ownership.refuse_exchanged(exchanged)
    on_host = anchors == "cpu"
    rounds = Rounds(named, rotation, mix, outer, scheme_text(scheme), on_host, process_set)
    adopted = adopt(optimizer, _LocalSteps, type(optimizer))
    adopted._rounds = rounds
    ownership.keep_apart(exchanged, rounds)
    return adopted


def _is_ours(key: Any) -> bool:
    return isinstance(key, str) and (key == KEY or key.startswith(f"{KEY}."))


def _check_mix_and_anchors(mix: Any, anchors: Any) -> None:
    if isinstance(mix, bool) or not isinstance(mix, (int, float)) or not 0 <= mix < 1:
        raise ValueError(
            f"mix is {mix!r}, expected a number from 0 to below 1: the weight of a rank's own "
            "parameter when a result is applied"
        )
    if anchors not in (None, "cpu"):
        raise ValueError(
            f'anchors is {anchors!r}, expected "cpu", which keeps anchors and outer momentum in '
            "host memory, or None, which keeps them beside the parameters"
        )


def _warn_of_second_weights(optimizer: Any) -> None:
    """Schedule-free optimizers have these methods, which swap the parameters for other weights."""
    if all(callable(getattr(optimizer, name, None)) for name in ("train", "eval")):
        warnings.warn(
            f"{type(optimizer).__name__} has train() and eval(), so it keeps second weights in its "
            "state. LocalSteps exchanges the parameters alone, so these weights stay different on "
            "the ranks, and after optimizer.eval() the models of the ranks differ: evaluate in the "
            "mode of training, after synchronize(), or average the second weights before eval() "
            "(hvd.allreduce_ on each tensor of optimizer.state)",
            stacklevel=3,
        )


def _named(optimizer: Any, named_parameters: Any, fragments: int) -> Named:
    if isinstance(optimizer, _LocalSteps) or not isinstance(optimizer, torch.optim.Optimizer):
        what = "wrapped by LocalSteps already" if isinstance(optimizer, _LocalSteps) else "no torch"
        raise ValueError(
            f"the optimizer is a {type(optimizer).__name__} that is {what}, expected an optimizer "
            "of torch: LocalSteps(torch.optim.AdamW(model.parameters()), every=30)"
        )
    if fragments > 1 and named_parameters is None:
        raise ValueError(
            f"fragments is {fragments}, and the names of the parameters are missing, which say "
            "where layers begin: pass named_parameters=model.named_parameters()"
        )
    given = None if named_parameters is None else list(named_parameters)
    named = name_parameters(optimizer.param_groups, given)
    if not named:
        raise ValueError("the optimizer has no parameters, so LocalSteps has nothing to exchange")
    for name, parameter in named:
        if hasattr(parameter, "_local_tensor"):
            raise ValueError(
                f"parameter {name} is a DTensor, of which each rank has a part (FSDP2 or tensor "
                "parallelism), expected a plain tensor: LocalSteps needs the whole model on every "
                "rank"
            )
    world.current()
    return named
