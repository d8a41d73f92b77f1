"""Compression for FSDP2 (`torch.distributed.fsdp.fully_shard`): how its gradients are reduced.

    fully_shard(model)
    reduce_through_penstock(model, "conf/topk-residual.toml")

FSDP2 lays the gradients of a module flat into one buffer, rank after rank, and each rank keeps its
part of the mean. Without a scheme that is a reduce-scatter. With one, each rank's part is a gradient
of a set, compressed by itself; what is gathered goes to that rank alone (the first half of route
`shard`), from and to where the buffer lies. A call returns when the result is there, on a device
when the current stream waits for it; nothing overlaps within it.
"""

from __future__ import annotations

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
from penstock.torch.collectives.reductions import Average, Sum, reduction_fields
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

    Every call is a step that was applied: what a loss scaler leaves out is lost. The set is made by
    the first call, collectively over the ranks of its group.
    """

    def __init__(self, scheme: str | Scheme | None = None) -> None:
        self._scheme = None if scheme is None else scheme_text(scheme)
        self._set: GradientSet | None = None
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
        if asked != self._made_for:
            raise ValueError(
                f"a module's gradients are {asked[0]} elements of {asked[1]}, in the first step "
                f"they were {self._made_for[0]} of {self._made_for[1]}, or the operation has "
                "changed: a PenstockReduceScatter belongs to one module, so make one for each"
            )
        assert self._set is not None
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
        self._set.step_end(True)
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
        flags = c.SET_OPTIMIZER_MOMENTUM | c.SET_RESULT_AT_OWNER | (0 if average else c.SET_SUM)
        assert self._scheme is not None
        self._set = world.current().create_set("fsdp", specs, flags, self._scheme, ranks)
        saved, self._saved = self._saved, {}
        self.load_state_dict(saved)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What compression keeps on this rank: each rank saves and loads its own. Between two
        backwards; empty before the first one and without a scheme."""
        if self._set is None:
            return dict(self._saved)
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
            self._set.load(bytes_of(state_dict.get(KEY), KEY))

    def counters(self) -> dict[str, int]:
        """Totals of the set: gradient_bytes, payload_bytes, moved_bytes and so on. ValueError
        before the first backward, and without a scheme."""
        if self._set is None:
            raise ValueError("this PenstockReduceScatter has no set: no backward yet, or no scheme")
        return self._set.counters()


def _reduce_scatter(
    flat: torch.Tensor, ranks: tuple[int, ...], average: bool, n_mine: int
) -> torch.Tensor:
    output = torch.empty(n_mine, dtype=flat.dtype)
    request = handles.Request(
        c.REDUCE_SCATTER, flat, lambda _: output, output=output,
        fields=reduction_fields(Average if average else Sum, 1.0, 1.0),
    )  # fmt: skip
    return handles.synchronize(handles.start("fsdp", None, request, ranks))
