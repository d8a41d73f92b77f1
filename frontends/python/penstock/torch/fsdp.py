"""Compression for FSDP2 (`torch.distributed.fsdp.fully_shard`): how its gradients are reduced.

    fully_shard(model)
    reduce_through_penstock(model, "conf/topk-residual.toml")

FSDP2 lays the gradients of a module flat into one buffer, rank after rank, and each rank keeps its
part of the mean. Without a scheme that is a reduce-scatter. With one, each rank's part is a gradient
of a set, compressed by itself; what is gathered goes to that rank alone (the first half of route
`shard`), from and to where the buffer lies. A call returns when the result is there, on a device
when the current stream waits for it; nothing overlaps within it.

A reduction counts as a step that was applied when an optimizer of the module's parameters has
stepped since; it stays open until the module's next one (see outcome.py).
"""

from __future__ import annotations

import gc
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
from penstock.torch import devices, handles, world
from penstock.torch.buckets import check_world
from penstock.torch.collectives.reductions import Average, Min, Sum, reduction_fields
from penstock.torch.outcome import StepOutcome
from penstock.torch.scheme import Scheme
from penstock.torch.settings import open_with, scheme_text
from penstock.torch.state import bytes_of, tensor_of
from penstock.torch.tensors import DTYPES, host_copy, usable

KEY = "penstock"
RANKS_KEY = "penstock.ranks"  # how many saved it


def reduce_through_penstock(
    model: torch.nn.Module, scheme: str | Scheme | None = None
) -> dict[str, PenstockReduceScatter]:
    """From now on the gradients of all modules of `model` that fully_shard was called on are
    reduced by Penstock. Returns what reduces them, by the module's name, for checkpoints.

    scheme: path of a .toml file, TOML text or a Scheme; None: dense, by a reduce-scatter. It names
        no route, and sees a flat gradient for each rank and module: methods for matrices leave it
        dense, sums reach every rank. Errors: ValueError where fully_shard was called on none.
    """
    sharded = {
        name: module for name, module in model.named_modules() if isinstance(module, FSDPModule)
    }
    if not sharded:
        raise ValueError(
            f"no module of {type(model).__name__} is sharded: call fully_shard(model) before "
            "reduce_through_penstock(model)"
        )
    reducers = {name: PenstockReduceScatter(scheme) for name in sharded}
    for name, module in sharded.items():
        module.set_custom_reduce_scatter(reducers[name])
    return reducers


class PenstockReduceScatter:
    """The object for `FSDPModule.set_custom_reduce_scatter`, one for each module: what compression
    keeps of the module's gradients (as large as these, on every rank) belongs to it.

    Every call is a step, forgotten where its result is thrown away. One that is called by hand, and
    by no module, counts as applied. The set is made by the first call, collectively over the ranks
    of its group.
    """

    def __init__(self, scheme: str | Scheme | None = None) -> None:
        self._scheme = None if scheme is None else scheme_text(scheme)
        self._set: GradientSet | None = None
        self._outcome = StepOutcome()
        self._has_module = False
        self._made_for: Any = None  # elements, element type, operation
        self._saved: dict[str, Any] = {}  # loaded before there was a set

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Memory for a flat buffer, as torch's own object gives it."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """This rank's part of the mean (or sum) of all ranks' `input_tensor` goes to
        `output_tensor`; the input is used up. Errors of the core come out of backward()."""
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
        open_with("")
        ranks = check_world(group)
        average = op == dist.ReduceOp.AVG
        in_place = usable(input_tensor)
        if self._scheme is None:
            work = input_tensor if in_place else host_copy(input_tensor)
            output_tensor.copy_(_reduce_scatter(work, ranks, average, output_tensor.numel()))
            return
        in_place = in_place or devices.place_of(input_tensor) != HOST
        work = input_tensor if in_place else host_copy(input_tensor)
        output_tensor.copy_(self._reduce(work, ranks or tuple(range(dist.get_world_size())), average))

    def _reduce(self, flat: torch.Tensor, ranks: tuple[int, ...], average: bool) -> torch.Tensor:
        """This rank's part of the mean or sum of what compression makes of all ranks' `flat`."""
        asked = (flat.numel(), flat.dtype, average)
        parts = flat.chunk(len(ranks))
        if self._set is None or not self._set.alive:
            self._make_set(parts, ranks, average)
            self._made_for = asked
        self._outcome.end()
        if asked != self._made_for:
            raise ValueError(
                f"a module's gradients are {asked[0]} elements of {asked[1]}, in the first step "
                f"they were {self._made_for[0]} of {self._made_for[1]}, or the operation has "
                "changed: a PenstockReduceScatter belongs to one module, so make one for each"
            )
        assert self._set is not None
        self._outcome.begin()
        place = devices.place_of(flat)
        stream = None
        if place != HOST:
            devices.refuse_capture()
            stream = devices.current_stream(flat)
        for number, part in enumerate(parts):
            view = TensorView(tuple(part.shape), DTYPES[part.dtype], part.data_ptr(), flat, place)
            self._set.ready(number, view, stream)
        for number in range(len(parts)):
            self._set.wait_stream(number, stream)
        if place != HOST:
            # FSDP2 lets go of the buffer on the stream that it was allocated on, which is another.
            devices.used_by_current_stream(flat)
        if self._has_module:
            self._await_fsdp()
        else:
            self._set.step_end(c.STEP_APPLIED)
        return parts[ranks.index(world.current().topology.rank)]

    def _make_set(
        self, parts: Sequence[torch.Tensor], ranks: tuple[int, ...], average: bool
    ) -> None:
        specs = [
            GradientSpec(
                f"part of rank {rank}", tuple(part.shape), DTYPES[part.dtype], owner=rank,
                place=devices.place_of(part),
            )
            for rank, part in zip(ranks, parts)
        ]  # fmt: skip
        # Whether the optimizer has a momentum is not known here: a memory must not have one.
        flags = c.SET_REPORTS_OUTCOME | c.SET_OPTIMIZER_MOMENTUM | c.SET_RESULT_AT_OWNER
        flags |= 0 if average else c.SET_SUM
        assert self._scheme is not None
        self._set = world.current().create_set(
            "fsdp", devices.with_room(specs), flags, self._scheme, ranks
        )
        saved, self._saved = self._saved, {}
        self.load_state_dict(saved)
        parameters = _parameters_reduced_by(self)
        self._has_module = bool(parameters)
        if parameters:
            name = f"{self._set.name}.outcome"
            self._outcome.follow(
                self._set,
                parameters,
                by_hooks=False,  # the next call comes before anything is added
                agree=lambda is_zero: _all_say(is_zero, name, ranks),
            )

    def _await_fsdp(self) -> None:
        """Notes what holds the results when FSDP2 has laid them into its parameters."""
        this = weakref.ref(self._outcome)

        def backward_ended() -> None:
            outcome = this()
            if outcome is not None:
                outcome.landed()

        torch.autograd.Variable._execution_engine.queue_callback(backward_ended)

    def let_go(self) -> None:
        """Zeroes what memories keep of earlier reductions, on every rank or on none; one that no
        optimizer has used yet is forgotten."""
        if self._set is not None:
            self._outcome.discard()
            self._set.let_go()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What compression keeps on this rank: each rank saves and loads its own. Between two
        backwards; empty before the first one and without a scheme. Of a reduction that no optimizer
        has used yet nothing is in it."""
        if self._set is None:
            return dict(self._saved)
        if self._outcome.is_decided():
            self._outcome.end()
        return {KEY: tensor_of(self._set.save()), RANKS_KEY: torch.tensor(self._set.n_gradients)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what `state_dict()` gave on this rank, on every rank; also before the first
        backward. ValueError for that of another number of ranks: how FSDP2 lays gradients into the
        flat buffer follows from it, so what is kept for one element would go to another."""
        if self._set is None:
            self._saved = dict(state_dict)
        elif state_dict:
            before = int(state_dict.get(RANKS_KEY, self._set.n_gradients))
            if before != self._set.n_gradients:
                raise ValueError(
                    f"the state of compression was saved on {before} ranks, and there are "
                    f"{self._set.n_gradients}: with FSDP2 parts of the gradients belong to ranks, "
                    "so load it on as many, or leave it out and go on from the parameters alone"
                )
            self._outcome.discard()
            self._set.load(bytes_of(state_dict.get(KEY), KEY))

    def counters(self) -> dict[str, int]:
        """Totals of the set: gradient_bytes, payload_bytes, moved_bytes and so on. ValueError
        before the first backward, and without a scheme."""
        if self._set is None:
            raise ValueError("this PenstockReduceScatter has no set: no backward yet, or no scheme")
        return self._set.counters()


_groups: weakref.WeakSet[Any] = weakref.WeakSet()  # FSDP2's, one for each module


def _parameters_reduced_by(reducer: PenstockReduceScatter) -> list[torch.Tensor]:
    """Those of the module that was given `reducer`, sharded, as optimizers have them. FSDP2 tells
    nobody whose gradients lie in a buffer, so whoever holds the object is looked for."""

    def found() -> list[Any]:
        return [one for one in _groups if one._reduce_scatter_comm is reducer]

    if not found():
        _groups.update(one for one in gc.get_objects() if type(one).__name__ == "FSDPParamGroup")
    parameters = (one.sharded_param for group in found() for one in group.fsdp_params)
    return [one for one in parameters if one.requires_grad]


def _all_say(is_zero: bool, name: str, ranks: tuple[int, ...]) -> bool:
    """Whether it is so on all of these ranks. Collective."""
    answer = torch.tensor([int(is_zero)], dtype=torch.int32)
    request = handles.Request(
        c.ALL_REDUCE, answer, lambda _: answer, output=answer,
        fields=reduction_fields(Min, 1.0, 1.0),
    )  # fmt: skip
    handles.synchronize(handles.start("fsdp", name, request, ranks))
    return bool(answer)


def _reduce_scatter(
    flat: torch.Tensor, ranks: tuple[int, ...], average: bool, n_mine: int
) -> torch.Tensor:
    output = torch.empty(n_mine, dtype=flat.dtype)
    request = handles.Request(
        c.REDUCE_SCATTER, flat, lambda _: output, output=output,
        fields=reduction_fields(Average if average else Sum, 1.0, 1.0),
    )  # fmt: skip
    return handles.synchronize(handles.start("fsdp", None, request, ranks))
