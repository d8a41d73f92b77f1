"""Compression for FSDP2 (`torch.distributed.fsdp.fully_shard`): Penstock reduces its gradients.

    fully_shard(model)
    reduce_through_penstock(model, "conf/topk-residual.toml")

FSDP2 puts the gradients of a module flat into one buffer, rank after rank, and each rank keeps its
part of the mean. Without a scheme this is a reduce-scatter. With a scheme, each rank's shard of a
parameter is a gradient of a set, with its shape, and is compressed separately (fsdp_shards.py).
Gathered payloads go to that rank alone (the first half of route `shard`). The core reads and writes
the buffer in place. With a scheme the exchange of a module goes on during backward of the modules
before it (see fsdp_overlap.py); on a device the current stream waits for it. Without a scheme a
call returns when the result is there.

A reduction counts as an applied step if an optimizer of the module's parameters has stepped after
it. It stays open until the module's next reduction (see outcome.py). Shards of parameters that a
step does not use travel as zeros, and the step is forgotten for them.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from penstock import _library as c
from penstock.common.devices import HOST
from penstock.common.gradient_set import GradientSet, GradientSpec
from penstock.common.operation import TensorView
from penstock.common.outcomes import outcome_of
from penstock.torch import devices, fsdp_overlap, fsdp_shards, world
from penstock.torch.buckets import check_world
from penstock.torch.fsdp_operations import all_say, reduce_scatter, refuse_comparisons
from penstock.torch.loss_scaling import scaler_above, warn_of_untold_scale
from penstock.torch.options import OptimizerOptions
from penstock.torch.outcome import StepOutcome
from penstock.torch.scheme import Scheme
from penstock.torch.settings import open_with, scheme_text
from penstock.torch.state import bytes_of, tensor_of, warn_of_empty
from penstock.torch.tensors import (
    DTYPES,
    check_has_values,
    in_host_memory,
    plain_copy,
    readable_by_address,
)

KEY = "penstock"
RANKS_KEY = "penstock.ranks"  # the number of ranks that saved the state
GRADIENTS_KEY = "penstock.gradients"  # the number of gradients in the state


def reduce_through_penstock(
    model: torch.nn.Module, scheme: str | Scheme | None = None
) -> dict[str, PenstockReduceScatter]:
    """Makes Penstock reduce the gradients of all modules of `model` that fully_shard was called on.
    Returns the reducers by the name of their module; checkpoints need them.

    scheme: path of a .toml file, TOML text or a Scheme; None: dense, by a reduce-scatter. A scheme
        names no route. Its gradients are the shards of the parameters, named "0.weight of rank 1".
    ValueError if fully_shard was called on no module.
    """
    sharded = {
        name: module for name, module in model.named_modules() if isinstance(module, FSDPModule)
    }
    if not sharded:
        if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
            raise ValueError(
                "the model is sharded by FullyShardedDataParallel (FSDP1), which reduces its "
                "gradients itself; shard with fully_shard(model) (FSDP2) instead, then call "
                "reduce_through_penstock(model)"
            )
        raise ValueError(
            f"no module of {type(model).__name__} is sharded: call fully_shard(model) before "
            "reduce_through_penstock(model)"
        )
    reducers = {name: PenstockReduceScatter(scheme) for name in sharded}
    for name, module in sharded.items():
        module.set_custom_reduce_scatter(reducers[name])
    return reducers


class PenstockReduceScatter:
    """The object for `FSDPModule.set_custom_reduce_scatter`. Each module needs its own: it holds
    the state of compression of the module's gradients, which is as large as these, on every rank.

    Every call is a step. The step is forgotten if its result is thrown away. If the program itself
    calls the object, and no module has it, the step counts as applied. The first call makes the
    set; it is collective over the ranks of the group.
    """

    def __init__(self, scheme: str | Scheme | None = None) -> None:
        self._scheme = None if scheme is None else scheme_text(scheme)
        self._set: GradientSet | None = None
        self._outcome = StepOutcome(self._before_step)
        # Rates are not reported, because memories with a momentum are refused.
        self._options = OptimizerOptions(list)
        self._groups: weakref.WeakSet[Any] = weakref.WeakSet()  # FSDP2's, which have this object
        # Of a reduction under way: its input, the number of this rank's part, and the output.
        self._under_way: tuple[torch.Tensor, int, torch.Tensor] | None = None
        self._n_ranks = 0  # of the set
        self._layout: fsdp_shards.Layout | None = None
        self._views: list[TensorView] = []  # for each gradient of the set
        self._made_for: Any = None  # element type, operation, parameters with gradients
        self._saved: dict[str, Any] = {}  # state loaded before there was a set

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Allocates a flat buffer, like torch's own object."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """Writes this rank's part of the mean (or sum) of all ranks' `input_tensor` to
        `output_tensor`. The call may overwrite the input. backward() raises errors of the core."""
        if async_op:
            raise NotImplementedError(
                "PenstockReduceScatter was asked for async_op=True, which FSDP2 does not use; "
                "leave it out"
            )
        if op not in (dist.ReduceOp.AVG, dist.ReduceOp.SUM):
            raise NotImplementedError(
                f"PenstockReduceScatter was asked for {op}, expected a mean or a sum: after "
                "set_gradient_divide_factor() call set_force_sum_reduction_for_comms(True)"
            )
        _check_buffer(input_tensor)
        open_with("")
        refuse_comparisons()
        ranks = check_world(group)
        average = op == dist.ReduceOp.AVG
        if self._scheme is None:
            work = in_host_memory(input_tensor)
            output_tensor.copy_(reduce_scatter(work, ranks, average, output_tensor.numel()))
            return
        place = devices.place_of(input_tensor)
        work = input_tensor
        if not readable_by_address(work, place=place):
            work = plain_copy(work, "cpu" if place == HOST else work.device)
        self._finish()
        ranks = ranks or tuple(range(dist.get_world_size()))
        in_buffer = fsdp_shards.parameters_in_buffer(sys._getframe(1))
        self._begin(output_tensor, work, ranks, average, in_buffer)
        if self._groups:
            if fsdp_overlap.may_travel(self._groups, output_tensor, op):
                fsdp_overlap.begin(self._finish)
            else:
                self._finish()
            self._await_fsdp()
            return
        self._finish()
        assert self._set is not None
        self._set.step_end(c.STEP_APPLIED)

    def _begin(
        self,
        output: torch.Tensor,
        flat: torch.Tensor,
        ranks: tuple[int, ...],
        average: bool,
        in_buffer: list[Any] | None,
    ) -> None:
        """Hands in the gradients of all ranks' `flat`. `_finish` puts this rank's part of their
        compressed mean or sum into `output`."""
        if self._set is None or not self._set.alive:
            self._make_set(flat, ranks, average, in_buffer)
        assert self._set is not None and self._layout is not None
        self._outcome.end()
        places = self._layout.places(flat.numel(), in_buffer)
        if not places or self._asked(flat, average) != self._made_for:
            raise ValueError(
                f"a module's gradients are {flat.numel()} elements of {flat.dtype}, which are not "
                f"those of the first step ({self._made_for[0]}), or the operation or the "
                "parameters that require gradients have changed: a PenstockReduceScatter belongs "
                "to one module, so make one for each, and call reduce_through_penstock again after "
                "you freeze or unfreeze parameters"
            )
        self._options.tell_scale(self._set)
        self._outcome.begin(number for number, place in enumerate(places) if place is None)
        stream = None
        if devices.place_of(flat) != HOST:
            devices.refuse_capture()
            stream = devices.current_stream(flat)
        for number, (place, view) in enumerate(zip(places, self._views)):
            holder, first = flat, place
            if first is None:
                shape = self._layout.shards[number].shape
                holder, first = torch.zeros(shape, dtype=flat.dtype, device=flat.device), 0
            view.point_at(holder.data_ptr() + first * flat.element_size(), holder)
            self._set.ready(number, view, stream)
        self._under_way = (flat, ranks.index(world.current().topology.rank), output)

    def _asked(self, flat: torch.Tensor, average: bool) -> tuple[Any, ...]:
        trained = fsdp_shards.requiring_gradients(self._groups)
        return flat.dtype, average, trained

    def _finish(self) -> None:
        """Waits for the reduction under way, if there is one, and writes its output."""
        fsdp_overlap.ended(self._finish)
        if self._under_way is not None:
            output = self._under_way[2]
            part = self._part()
            if part is not None:
                output.copy_(part)

    def _part(self) -> torch.Tensor | None:
        """Waits for the reduction under way. Returns this rank's part of the result, in the buffer
        that was handed in; None if the runtime has ended."""
        assert self._set is not None and self._under_way is not None
        (flat, mine, _), self._under_way = self._under_way, None
        for view in self._views:
            view.owner = None  # otherwise the buffer would live until the next step
        if not self._set.alive:
            return None
        if devices.place_of(flat) == HOST:
            self._set.wait_all()
        else:
            stream = devices.current_stream(flat)
            for number in range(self._set.n_gradients):
                self._set.wait_stream(number, stream)
            # FSDP2 frees the buffer on the stream of its allocation, which is another stream.
            devices.used_by_current_stream(flat)
        length = flat.numel() // self._n_ranks
        return flat[mine * length : (mine + 1) * length]

    def _make_set(
        self, flat: torch.Tensor, ranks: tuple[int, ...], average: bool, in_buffer: list[Any] | None
    ) -> None:
        self._groups = weakref.WeakSet(_groups_of(self))
        self._layout = fsdp_shards.Layout(self._groups, ranks, flat.numel(), in_buffer)
        shards = self._layout.shards
        dtype, place = DTYPES[flat.dtype], devices.place_of(flat)
        specs = [
            GradientSpec(one.name, one.shape, dtype, owner=one.owner, place=place)
            for one in shards
        ]
        # It is not known here whether the optimizer has a momentum, so a memory must have none.
        flags = c.SET_REPORTS_OUTCOME | c.SET_OPTIMIZER_MOMENTUM | c.SET_RESULT_AT_OWNER
        flags |= 0 if average else c.SET_SUM
        assert self._scheme is not None
        self._set = world.current().create_set(
            "fsdp", devices.with_room(specs), flags, self._scheme, ranks
        )
        self._n_ranks = len(ranks)
        self._options.of_new_set()
        self._views = [TensorView(one.shape, dtype, place=place) for one in shards]
        self._made_for = self._asked(flat, average)
        saved, self._saved = self._saved, {}
        self._load(saved)
        parameters = [
            one.sharded_param
            for group in self._groups
            for one in group.fsdp_params
            if one.sharded_param.requires_grad
        ]
        if parameters:
            name = f"{self._set.name}.outcome"
            self._outcome.follow(
                self._set,
                parameters,
                by_hooks=False,  # the next call comes before backward adds anything
                agree=lambda is_zero: all_say(is_zero, name, ranks),
            )

    def _await_fsdp(self) -> None:
        """When backward ends, finishes the reduction and notes the gradients that hold its
        results, where FSDP2 has put them."""
        this = weakref.ref(self)

        def backward_ended() -> None:
            reducer = this()
            if reducer is not None:
                reducer._finish()
                reducer._outcome.landed()

        fsdp_overlap.at_end_of_backward(backward_ended)

    def set_grad_scale(self, scale: float) -> None:
        """Sets the factor by which the loss of the next backward is scaled
        (``scaler.get_scale()``). Residuals then keep their true size when the factor changes. Call
        it before backward, on every reducer of the model. Does nothing without a scheme, which
        keeps nothing."""
        self._options.scale_next(float(scale))

    def _before_step(self, _: torch.optim.Optimizer) -> None:
        if self._set is not None and scaler_above():
            reducers = "for reducer in reducers.values(): reducer"
            warn_of_untold_scale(self._options, self._set, reducers)

    def step_end(self, outcome: str = "applied") -> None:
        """Ends the last reduction as "applied" (its gradients were used) or as "forget" (the state
        of compression becomes what it was before the backward). Call it on every reducer of the
        model, and with an equal outcome on every rank, if gradients are used or thrown away in a
        manner that Penstock cannot observe; docs/ddp.md says which."""
        ending = outcome_of(outcome)
        self._finish()
        self._outcome.end(ending)

    def let_go(self) -> None:
        """Zeroes the values that memories keep of earlier reductions. Call it on every rank or on
        none. A reduction that no optimizer has used yet is forgotten."""
        self._finish()
        if self._set is not None:
            self._outcome.discard()
            self._set.let_go()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Returns the state of compression on this rank; each rank saves and loads its own. Call it
        between two backwards. Empty before the first backward and without a scheme. The state
        contains nothing of a reduction that no optimizer has used yet."""
        self._finish()
        if self._set is None:
            return dict(self._saved)
        if self._outcome.is_decided():
            self._outcome.end()
        return {
            KEY: tensor_of(self._set.save()),
            RANKS_KEY: torch.tensor(self._n_ranks),
            GRADIENTS_KEY: torch.tensor(self._set.n_gradients),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores a state that `state_dict()` returned on this rank. Call it on every rank; it may
        be before the first backward. ValueError for a state of another number of ranks or of other
        gradients, because values would go to other elements. An empty state gives a warning."""
        if self._scheme is not None:
            warn_of_empty(state_dict, "PenstockReduceScatter")
        self._load(state_dict)

    def _load(self, state_dict: dict[str, Any]) -> None:
        self._finish()
        if self._set is None:
            self._saved = dict(state_dict)
        elif state_dict:
            self._check_layout(state_dict)
            self._outcome.discard()
            self._set.load(bytes_of(state_dict.get(KEY), KEY))

    def _check_layout(self, state_dict: dict[str, Any]) -> None:
        assert self._set is not None
        before = int(state_dict.get(RANKS_KEY, self._n_ranks))
        if before != self._n_ranks:
            raise ValueError(
                f"the state of compression was saved on {before} ranks, and there are "
                f"{self._n_ranks}: with FSDP2 parts of the gradients belong to ranks, "
                "so load it on as many, or leave it out and go on from the parameters alone"
            )
        # Old states have no such number; they had one gradient for each rank.
        n_saved = int(state_dict.get(GRADIENTS_KEY, before))
        if n_saved != self._set.n_gradients:
            raise ValueError(
                f"the state of compression has {n_saved} gradients, and this module has "
                f"{self._set.n_gradients}, one for each shard of a parameter: the state belongs to "
                "another module, to other frozen parameters, or to an older Penstock, which had "
                "one gradient for each rank; leave it out and go on from the parameters alone"
            )

    def counters(self) -> dict[str, int]:
        """Returns totals of the set: gradient_bytes, payload_bytes, moved_bytes and so on.
        ValueError before the first backward, and without a scheme."""
        if self._set is None:
            raise ValueError("this PenstockReduceScatter has no set: no backward yet, or no scheme")
        return self._set.counters()


def _check_buffer(flat: torch.Tensor) -> None:
    check_has_values("the buffer of a module's gradients", flat)
    if flat.dtype not in DTYPES or not flat.dtype.is_floating_point:
        raise ValueError(
            f"the gradients of a module have the element type {flat.dtype}, expected float32, "
            "float64, float16 or bfloat16: "
            "fully_shard(module, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float32))"
        )


_groups: weakref.WeakSet[Any] = weakref.WeakSet()  # FSDP2's, one for each module


def _groups_of(reducer: PenstockReduceScatter) -> list[Any]:
    """The groups of parameters that FSDP2 reduces by `reducer`. FSDP2 does not report the group of
    a buffer, so this function searches for the objects that hold the reducer."""

    def found() -> list[Any]:
        return [one for one in _groups if one._reduce_scatter_comm is reducer]

    if not found():
        _groups.update(one for one in gc.get_objects() if type(one).__name__ == "FSDPParamGroup")
    return found()
