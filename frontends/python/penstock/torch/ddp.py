"""Compression for torch's DistributedDataParallel: a communication hook and its state.

    model = DistributedDataParallel(model)
    model.register_comm_hook(PenstockState("conf/dgc.toml"), ddp_hook)

Annotations are evaluated here: torch compares those of a hook with its own types.
"""

import os
import warnings
from collections.abc import Iterable
from typing import Any, Dict, Optional, Tuple, Union

import torch
import torch.distributed as dist

from penstock import _library as c
from penstock.torch import unused
from penstock.torch.bucket_exchange import BucketExchange
from penstock.torch.scheme import Scheme
from penstock.torch.settings import checked, given_scheme


class PenstockState:
    """What `ddp_hook` keeps for one DistributedDataParallel object: its scheme, and what
    compression keeps of its gradients on this rank.

    scheme: path of a .toml file, TOML text, or a Scheme; without it that of the runtime. Where
        the runtime is not open yet, the first backward opens it with this as its configuration.
    named_parameters: usually ``model.named_parameters()``: names for rules and reports. Without
        them the parameters are called parameter.0, parameter.1 and so on.
    process_group: that of the DDP object, where it is not torch's default one.

    Nothing happens before the first backward, so a state may be made before the processes are. It
    may be pickled, and then carries what this rank's compression keeps.
    Errors of the core come out of ``backward()``; every rank gets one.
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
        """The factor by which the loss of the next backward is scaled (``scaler.get_scale()``), so
        that residuals keep their true size when it changes. Call it before backward."""
        self._exchange.options.scale_next(float(scale))

    def step_end(self, outcome: str = "applied") -> None:
        """Ends the step as "applied" (its gradients were used) or "forget": then what compression
        keeps is, to the bit, what it was before the backward. The same on every rank.

        Without it a step ends with the next backward, as what was seen: docs/ddp.md says how. Call
        it where gradients are used, or thrown away, in a way that cannot be seen.
        """
        outcomes = {"applied": c.STEP_APPLIED, "forget": c.STEP_FORGOTTEN}
        if outcome not in outcomes:
            raise ValueError(
                f'the outcome of a step is {outcome!r}, expected "applied" or "forget"'
            )
        self._exchange.end(outcomes[outcome])

    def let_go(self) -> None:
        """Zeroes what memories keep of earlier steps (residuals, momenta, shifts), on every rank or
        on none: for a loop that throws away every step because of what one of them has left there.
        A step that no optimizer has used yet is forgotten."""
        self._exchange.let_go()

    def state_dict(self) -> Dict[str, torch.Tensor]:
        """What compression keeps on this rank: each rank saves and loads its own. Ends the step;
        after the optimizer's step, on every rank. Empty before the first backward."""
        return self._exchange.save()

    def load_state_dict(self, state_dict: Dict[str, torch.Tensor]) -> None:
        """Restores what ``state_dict()`` gave on this rank, on every rank; also before the first
        backward. The next steps equal those after the save."""
        self._exchange.load(state_dict)

    def load_shards(self, states: Iterable[Dict[str, torch.Tensor]]) -> str:
        """Restores what ``state_dict()`` gave on every rank of a run, of this size or another, in
        the order of its ranks; collective, with the same on every rank, and also before the first
        backward, which loads them then. What is owed to the parameters stays. Returns what became
        of each kind of state, a line for each; so does ``loaded``."""
        return self._exchange.load_shards(list(states))

    @property
    def loaded(self) -> str:
        """What became of the states that ``load_shards`` was given last, a line for each kind;
        empty until they are loaded."""
        return self._exchange.loaded

    def report(self) -> Dict[str, Any]:
        """The plan of the gradients and their counters. ValueError before the first backward."""
        return self._made().report()

    def counters(self) -> Dict[str, int]:
        """Totals: steps, gradient_bytes, payload_bytes, moved_bytes and so on. ValueError before
        the first backward."""
        return self._made().counters()

    def close(self) -> None:
        """Ends the exchange before the runtime ends; every rank calls it. No backward may
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
        unused.used(self._unused)  # it may have been read for what it holds


def ddp_hook(
    state: PenstockState, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket of gradients over the ranks, compressed as the state's scheme says.

    For ``DistributedDataParallel.register_comm_hook(state, ddp_hook)``, Lightning's
    ``DDPStrategy(ddp_comm_state=state, ddp_comm_hook=ddp_hook)``, and the like. Returns at once;
    the future holds the bucket's own buffer with the mean in it.
    """
    if not isinstance(state, PenstockState):
        raise ValueError(
            f"ddp_hook got a {type(state).__name__} as its state, expected a PenstockState: "
            "model.register_comm_hook(PenstockState(\"conf/dgc.toml\"), ddp_hook)"
        )
    if isinstance(bucket, tuple):
        raise NotImplementedError(
            "DistributedDataParallel compiled with the python_reducer hands out no buckets that "
            "ddp_hook could take; leave torch._dynamo.config.optimize_ddp at its default"
        )
    unused.used(state._unused)
    return state._exchange.hand_in(bucket)
