"""Compression for torch's DistributedDataParallel: a communication hook and its state.

    model = DistributedDataParallel(model)
    model.register_comm_hook(PenstockState("conf/dgc.toml"), ddp_hook)

This module evaluates its annotations, because torch compares a hook's annotations with its own
types.
"""

import os
import warnings
from collections.abc import Iterable
from typing import Any, Dict, Optional, Tuple, Union

import torch
import torch.distributed as dist

from penstock.common.outcomes import outcome_of
from penstock.torch import unused
from penstock.torch.bucket_exchange import BucketExchange
from penstock.torch.scheme import Scheme
from penstock.torch.settings import checked, given_scheme
from penstock.torch.state import warn_of_empty


class PenstockState:
    """The state of `ddp_hook` for one DistributedDataParallel object: the scheme, and the state of
    compression of its gradients on this rank.

    scheme: path of a .toml file, TOML text, or a Scheme; default: the runtime's scheme. If the
        runtime is not open yet, the first backward opens it with this scheme as configuration.
    named_parameters: usually ``model.named_parameters()``; names for rules and reports. Without
        names the parameters are called parameter.0, parameter.1 and so on.
    process_group: the ranks to average over; by default the group of the DDP object.

    A state does nothing before the first backward, so it may be made before the processes are. It
    may be pickled; the pickle contains the state of compression of this rank.
    ``backward()`` raises the errors of the core, on every rank.
    """

    def __init__(
        self,
        scheme: Union[str, "os.PathLike[str]", Scheme] = "",
        named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]] = None,
        process_group: Optional[dist.ProcessGroup] = None,
    ) -> None:
        self._scheme = checked(given_scheme(scheme))
        self._process_group = process_group
        named = None if named_parameters is None else list(named_parameters)
        self._exchange = BucketExchange(self._scheme, named, process_group)
        self._unused = unused.await_use(self._scheme)

    def set_grad_scale(self, scale: float) -> None:
        """Sets the factor by which the loss of the next backward is scaled
        (``scaler.get_scale()``). Residuals then keep their true size when the factor changes. Call
        it before backward."""
        self._exchange.options.scale_next(float(scale))

    def step_end(self, outcome: str = "applied") -> None:
        """Ends the step as "applied" (its gradients were used) or as "forget" (the state of
        compression becomes, to the bit, the state before the backward). All ranks must call it with
        an equal outcome.

        Without this call a step ends at the next backward, with the outcome that Penstock has
        observed; docs/ddp.md describes how. Call it if gradients are used or thrown away in a
        manner that Penstock cannot observe.
        """
        self._exchange.end(outcome_of(outcome))

    def let_go(self) -> None:
        """Zeroes the values that memories keep of earlier steps (residuals, momenta, shifts). Call
        it on every rank or on none. It helps a loop that throws away every step because an earlier
        step has left bad values there. A step that no optimizer has used yet is forgotten."""
        self._exchange.let_go()

    def state_dict(self) -> Dict[str, torch.Tensor]:
        """Returns the state of compression on this rank; each rank saves and loads its own. Ends
        the step. Call it after the optimizer's step, on every rank. Empty before the first
        backward."""
        return self._exchange.save()

    def load_state_dict(self, state_dict: Dict[str, torch.Tensor]) -> None:
        """Restores a state that ``state_dict()`` returned on this rank. Call it on every rank; it
        may be before the first backward. The next steps equal the steps after the save. An empty
        state gives a warning."""
        warn_of_empty(state_dict, "PenstockState")
        self._exchange.load(state_dict)

    def load_shards(self, states: Iterable[Dict[str, torch.Tensor]]) -> str:
        """Restores the states that ``state_dict()`` returned on all ranks of a run, in the order of
        its ranks; that run may have had another number of ranks. Collective, with equal states on
        every rank. Before the first backward the states are stored, and the first backward loads
        them. Unsent gradient values keep their total effect on the parameters, unless a plugin
        drops or refuses them. Returns a line for each kind of state with its treatment; ``loaded``
        returns these lines too."""
        return self._exchange.load_shards(list(states))

    @property
    def loaded(self) -> str:
        """The lines about the states of the last ``load_shards``, one for each kind of state; empty
        until the states are loaded."""
        return self._exchange.loaded

    def report(self) -> Dict[str, Any]:
        """Returns the plan and the counters of the gradients. ValueError before the first
        backward."""
        return self._made().report()

    def counters(self) -> Dict[str, int]:
        """Returns totals: steps, gradient_bytes, payload_bytes, moved_bytes and so on. ValueError
        before the first backward."""
        return self._made().counters()

    def close(self) -> None:
        """Ends the exchange before the runtime ends. Every rank must call it. No backward may
        follow."""
        self._exchange.close()

    def _made(self) -> Any:
        if self._exchange.set is None:
            raise ValueError("this PenstockState has seen no backward yet: there is no report")
        return self._exchange.set

    def __getstate__(self) -> Dict[str, Any]:
        return {
            "scheme": self._scheme,
            "state": self.state_dict(),
            "has_group": self._process_group is not None,
        }

    def __setstate__(self, state: Dict[str, Any]) -> None:
        if state["has_group"]:
            warnings.warn(
                "a process group cannot be pickled: this PenstockState averages over all ranks",
                stacklevel=2,
            )
        self.__init__(state["scheme"])  # type: ignore[misc]
        self.load_state_dict(state["state"])
        unused.used(self._unused)  # the program may only read the state


def ddp_hook(
    state: PenstockState, bucket: dist.GradBucket, *shards: torch.Tensor
) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket of gradients over the ranks, compressed by the state's scheme.

    Pass it to ``DistributedDataParallel.register_comm_hook(state, ddp_hook)``, to Lightning's
    ``DDPStrategy(ddp_comm_state=state, ddp_comm_hook=ddp_hook)``, and so on. Returns at once; the
    future gives the bucket's own buffer, which then holds the mean.

    Raises: ValueError for another state; NotImplementedError under FullyShardedDataParallel (FSDP1),
    which hands a hook tensors instead of a bucket, with or without `shards`.
    """
    if not isinstance(state, PenstockState):
        raise ValueError(
            f"ddp_hook got a {type(state).__name__} as its state, expected a PenstockState: "
            "model.register_comm_hook(PenstockState(\"conf/dgc.toml\"), ddp_hook)"
        )
    if shards or isinstance(bucket, torch.Tensor):
        raise NotImplementedError(
            "ddp_hook takes the buckets of DistributedDataParallel, and FullyShardedDataParallel "
            "(FSDP1) has none; shard with fully_shard(model) (FSDP2) and then call "
            "reduce_through_penstock(model, scheme)"
        )
    if isinstance(bucket, tuple):
        raise NotImplementedError(
            "DistributedDataParallel compiled with the python_reducer hands out no buckets that "
            "ddp_hook could take; leave torch._dynamo.config.optimize_ddp at its default"
        )
    unused.used(state._unused)
    return state._exchange.hand_in(bucket)
