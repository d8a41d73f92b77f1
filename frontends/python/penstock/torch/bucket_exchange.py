"""The exchange of one DistributedDataParallel object's buckets between backward and update. DDP
hands a bucket in when it is full; a future returns the result.

The set is made when the first backward has shown all buckets, so in that step nothing is sent
before backward is over. If DDP rebuilds its buckets, the set learns the new buckets at the next
step. Until then each gradient goes to the core by its parameter, in whichever bucket it comes.

On the CPU the core notifies this class when a result is there. On devices that notice would come
only after the copy to the device has ended. Instead, once the last bucket is handed in, the streams
wait and the host does not.
Threads: autograd calls `hand_in`, the core calls `arrived`. The user's thread makes all other calls
while no backward is under way.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any, Callable

import torch
import torch.distributed as dist

from penstock import _library as c
from penstock.common.devices import HOST
from penstock.common.gradient_set import GradientSet, GradientSpec
from penstock.common.operation import TensorView
from penstock.torch import devices, world
from penstock.torch.buckets import (
    Bucket, check_world, group_of_ddp, memory_shape, mean_of_sparse, numbered,
)  # fmt: skip
from penstock.torch.checks import Named
from penstock.torch.first_step import compare_again_if_due
from penstock.torch.options import OptimizerOptions
from penstock.torch.loss_scaling import scaler_above, warn_of_untold_scale
from penstock.torch.outcome import StepOutcome
from penstock.torch.ownership import check_unclaimed, note_hooked
from penstock.torch.settings import open_with, scheme_text
from penstock.torch.state import bytes_of, tensor_of
from penstock.torch.tensors import DTYPES

KEY = "penstock"
BUCKETS_KEY = "penstock.buckets"


class BucketExchange:
    """The set of one model, made at its first backward."""

    def __init__(
        self, scheme: str, named: Named | None, process_group: dist.ProcessGroup | None
    ) -> None:
        self.set: GradientSet | None = None
        self.options = OptimizerOptions(lambda: self._outcome.groups())
        self._outcome = StepOutcome(self._before_step)
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()  # that stepped
        self._scheme = scheme
        self._opened = False  # this object has opened the runtime with its scheme
        self._ranks: tuple[int, ...] = ()  # ranks of the set; empty: all
        self._named = named
        self._stands_in = False  # in this step DDP's join() stands in for this rank
        self._process_group = process_group
        self._has_asked_ddp = process_group is not None
        self._held: list[Bucket] = []  # buckets of the first backward
        self._saved: dict[str, torch.Tensor] = {}  # state loaded before there was a set
        self._shards: list[dict[str, torch.Tensor]] = []  # states of all ranks, loaded before it
        self.loaded = ""  # the lines about the loaded states of all ranks
        self._parameters: list[torch.Tensor] = []  # by number in the set
        self.indices: dict[int, int] = {}  # number in the set, by id of the parameter
        self._views: list[TensorView] = []
        self._dtypes: list[torch.dtype] = []  # element types declared to the core
        self._given: list[int] = []  # the buckets that the core knows, by number of the gradient
        self._seen: list[int] = []  # the buckets of the last backward, by number of the gradient
        self._order: list[int] = []  # the order in which backward handed gradients in
        self._given_order: list[int] = []  # the order when the core received its buckets
        self._where: list[int] = []  # the addresses of the gradients in their buckets
        self._lock = threading.Lock()
        self._awaited: dict[int, Bucket] = {}  # by number of the gradient
        # For devices: buckets that were handed in and that no stream waits for yet.
        self._staged: list[tuple[Bucket, list[int]]] = []

    # ---- backward ----

    def hand_in(self, given: dist.GradBucket) -> torch.futures.Future:
        """Hands in a bucket that is complete on this rank. The future gives the mean in the
        bucket's own memory."""
        bucket = Bucket(given)
        if bucket.place != HOST:
            devices.refuse_capture()
        if not self._has_asked_ddp:
            self._process_group, self._has_asked_ddp = group_of_ddp(bucket.parameters), True
        if bucket.number == 0:
            self._held.clear()
            if self.set is not None:
                self._begin()
            # Outside of a backward, DDP's join() stands in for a rank that has no more data.
            self._stands_in = torch._C._current_graph_task_id() == -1
        if bucket.buffer.is_sparse:
            self._opened = open_with(self._scheme) or self._opened
            bucket.finish(mean_of_sparse(bucket, self._process_group))
        elif self.set is None:
            self._held.append(bucket)
        else:
            self._submit(bucket)
        if bucket.is_last:
            if self.set is None and self._held:
                held, self._held = self._held, []
                self._make_set(held)
                self._begin()
                for one in held:
                    self._submit(one)
            self._check_complete()
            self._let_streams_wait()
            self._await_ddp()
        return bucket.future

    def _begin(self) -> None:
        assert self.set is not None
        self.end()
        if self._seen != self._given or self._order != self._given_order:
            self.set.set_given_buckets(self._seen)
            self._given, self._given_order = list(self._seen), self._order
        self._order = []
        compare_again_if_due(self.set, zip(self.set.gradient_names, self._parameters))
        self.options.tell(self.set, self.indices)
        self.options.tell_scale(self.set)
        self._outcome.begin()

    def _submit(self, bucket: Bucket) -> None:
        assert self.set is not None
        numbers = [self._number_of(parameter) for parameter in bucket.parameters]
        self._check_dtype(bucket, numbers)
        if self.set.is_staged:
            self._staged.append((bucket, numbers))
        else:
            with self._lock:
                for number in numbers:
                    self._awaited[number] = bucket
        self._order += numbers
        for number, gradient, address in zip(numbers, bucket.gradients, bucket.addresses()):
            self._seen[number] = bucket.number
            self._where[number] = gradient.data_ptr()
            self._views[number].point_at(address, bucket)
            self.set.ready(number, self._views[number], bucket.stream)

    def _await_ddp(self) -> None:
        """Notes which gradients hold their results, when DDP has distributed all results. The
        gradient of a parameter that no rank has used stays unchanged (find_unused_parameters)."""
        before = [_mark(parameter.grad) for parameter in self._parameters]
        this = weakref.ref(self)

        def given_out() -> None:
            exchange = this()
            if exchange is not None:
                exchange._given_out(before)

        # DDP's own callback distributes the results. It runs between these two callbacks.
        _when_backward_ends(lambda: _when_backward_ends(given_out))

    def _given_out(self, before: Sequence[tuple[int, int]]) -> None:
        self._outcome.landed(
            number
            for number, parameter in enumerate(self._parameters)
            if parameter.grad is not None
            and _mark(parameter.grad) == before[number]
            and parameter.grad.data_ptr() != self._where[number]  # not a view of its bucket
        )

    def _number_of(self, parameter: torch.Tensor) -> int:
        number = self.indices.get(id(parameter))
        if number is None:
            raise ValueError(
                f"a parameter of shape {tuple(parameter.shape)} does not belong to the first model "
                "of this PenstockState: residuals belong to one model, so make a "
                "PenstockState for each DistributedDataParallel"
            )
        return number

    def _check_dtype(self, bucket: Bucket, numbers: Sequence[int]) -> None:
        # A bucket has one element type. It may differ from the parameters' type, because torch's
        # wrappers cast the bucket.
        for number, parameter in zip(numbers, bucket.parameters):
            if bucket.buffer.dtype != self._dtypes[number]:
                raise ValueError(
                    f"ddp_hook got gradients of {bucket.buffer.dtype} for a parameter of "
                    f"{parameter.dtype} and shape {tuple(parameter.shape)}, expected "
                    f"{self._dtypes[number]} as in the first step; if the hook was wrapped again "
                    "or the model was cast, wrap the model again, with a new state: "
                    "register_comm_hook(PenstockState(...), fp16_compress_wrapper(ddp_hook))"
                )

    def _check_complete(self) -> None:
        if self.set is not None and len(self._order) != len(self._parameters):
            raise ValueError(
                f"DistributedDataParallel gave {len(self._order)} gradients, in the first step "
                f"there were {len(self._parameters)}: the parameters that require gradients have "
                "changed; wrap the model again, with a new PenstockState"
            )

    def arrived(self, numbers: Sequence[int], error: Exception | None) -> None:
        """Called by the core: the results of these gradients are there or, with an `error`, will
        not come."""
        ended = []
        with self._lock:
            for number in numbers:
                bucket = self._awaited.pop(number, None)
                if bucket is None or bucket.left == 0:  # a gradient of the bucket failed before
                    continue
                bucket.left = bucket.left - 1 if error is None else 0
                if bucket.left == 0:
                    ended.append(bucket)
        for bucket in ended:
            bucket.finish(error if error is not None else bucket.buffer)

    def _let_streams_wait(self) -> None:
        """For devices, when all buckets are handed in: gives DDP the results, which may still be on
        their way to the device. Returns when the exchange is over."""
        staged, self._staged = self._staged, []
        for bucket, numbers in staged:
            result: torch.Tensor | Exception = bucket.buffer
            try:
                for number in numbers:
                    self._let_stream_wait(number, bucket)
            except Exception as error:  # noqa: BLE001 - backward() raises it from the future
                result = error
            bucket.finish(result)

    def _let_stream_wait(self, number: int, bucket: Bucket) -> None:
        assert self.set is not None
        if bucket.place == HOST:
            self.set.wait(number)
            return
        # The future records the current stream when it is set.
        self.set.wait_stream(number, devices.current_stream(bucket.buffer))
        # DDP frees its buffers when it makes new ones, on any stream.
        devices.used_by_current_stream(bucket.buffer)

    # ---- the set ----

    def _make_set(self, held: Sequence[Bucket]) -> None:
        """Makes the set. Collective over the ranks of the process group."""
        self._opened = open_with(self._scheme) or self._opened
        ranks = check_world(self._process_group)
        numbering = numbered(held, self._named)
        check_unclaimed([one.parameter for one in numbering])
        self._parameters = [one.parameter for one in numbering]
        self.indices = {id(one.parameter): number for number, one in enumerate(numbering)}
        self._dtypes = [one.gradient.dtype for one in numbering]
        self._seen = [one.bucket for one in numbering]
        self._given = list(self._seen)
        self._where = [0] * len(numbering)
        saved, self._saved = self._saved, {}
        shards, self._shards = self._shards, []
        if saved or self._are_of_this_world(shards, ranks):
            self._given = _buckets_of(saved or shards[0], len(numbering))
        specs = [
            GradientSpec(
                one.name, memory_shape(one.parameter), DTYPES[one.gradient.dtype], given,
                place=one.place,
            )
            for one, given in zip(numbering, self._given)
        ]  # fmt: skip
        self._views = [TensorView(spec.shape, spec.dtype, place=spec.place) for spec in specs]
        self.options.of_new_set()
        made = world.current().create_set(
            "ddp",
            devices.with_room(specs),
            c.SET_REPORTS_OUTCOME | c.SET_GIVEN_BUCKETS,
            "" if self._opened else scheme_text(self._scheme),
            ranks,
        )
        this = weakref.ref(self)  # the core holds the callback until the runtime ends

        def tell(numbers: list[int], error: Exception | None) -> None:
            exchange = this()
            if exchange is not None:
                exchange.arrived(numbers, error)

        if not made.is_staged:
            made.on_result(tell)
        if saved:
            made.load(bytes_of(saved.get(KEY), KEY))
        if shards:
            self.loaded = made.load_shards([bytes_of(one.get(KEY), KEY) for one in shards])
        self.set, self._ranks = made, ranks
        note_hooked(self._parameters, self)
        self._outcome.follow(made, self._parameters)

    # ---- between two steps ----

    @property
    def open(self) -> bool:
        """True if gradients of a step were handed in and the core has not received its end."""
        return self._outcome.is_open

    def end(self, outcome: int = c.STEP_AS_SEEN) -> None:
        """Ends the step under way, if there is one."""
        self._wait()
        if self._stands_in and outcome == c.STEP_AS_SEEN:
            outcome = c.STEP_APPLIED  # the ranks with data end it as applied
        self._outcome.end(outcome)

    def _wait(self) -> None:
        if self.open and self.set is not None and (not self.set.is_staged or self._staged):
            self.set.wait_all()
            self._staged.clear()

    def let_go(self) -> None:
        """Zeroes the values that memories keep. A step that is not used yet is forgotten."""
        if self.set is not None:
            self._wait()
            self._outcome.discard()
            self.set.let_go()

    def save(self) -> dict[str, torch.Tensor]:
        """Returns the state of compression on this rank, with the buckets that the core knows. The
        state contains nothing of a step that no optimizer has used yet; that step goes on."""
        if self._shards:
            raise ValueError(
                "the states of all ranks were loaded, and the first backward makes this rank's "
                "state from them: save after the first backward"
            )
        if self.set is None:
            return dict(self._saved)
        if self._outcome.is_decided():
            self.end()
        return {KEY: tensor_of(self.set.save()), BUCKETS_KEY: torch.tensor(self._given)}

    def load(self, saved: dict[str, Any]) -> None:
        """Restores a state that `save` returned, now or when the set is made."""
        if self.set is None:
            self._saved, self._shards = dict(saved), []
        elif saved:
            self._wait()
            self._outcome.discard()
            self._given = _buckets_of(saved, len(self._parameters))
            self.set.set_given_buckets(self._given)
            self.set.load(bytes_of(saved.get(KEY), KEY))

    def load_shards(self, states: Sequence[dict[str, Any]]) -> str:
        """Restores the states that `save` returned on all ranks of a run, now or when the set is
        made. That run may have had another number of ranks. Collective. Returns a line for each
        kind of state with its treatment."""
        shards = [bytes_of(state.get(KEY), KEY) for state in states]
        if self.set is None:
            self._saved, self._shards = {}, [dict(state) for state in states]
            return "the first backward loads the states\n"
        self._wait()
        self._outcome.discard()
        if self._are_of_this_world(states, self._ranks):
            self._given = _buckets_of(states[0], len(self._parameters))
            self.set.set_given_buckets(self._given)
        self.loaded = self.set.load_shards(shards)
        return self.loaded

    @staticmethod
    def _are_of_this_world(states: Sequence[dict[str, Any]], ranks: tuple[int, ...]) -> bool:
        """True if there is a state for each rank of this run. The saved plan and the saved buckets
        then stay in force. Otherwise a new plan is made from the present buckets."""
        return len(states) == (len(ranks) or world.size())

    def close(self) -> None:
        """Destroys the set. Collective."""
        self._outcome.unfollow()
        if self.set is not None and self.set.alive:
            world.current().destroy_set(self.set)

    # ---- optimizers ----

    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Called before an optimizer's step. HorovodInternalError if both the optimizer and a
        memory of the set have a momentum."""
        assert self.set is not None
        if optimizer not in self._optimizers:
            self._optimizers.add(optimizer)
            self.options.tell(self.set, self.indices)
        if scaler_above():
            warn_of_untold_scale(self.options, self.set, "state")


def _mark(gradient: torch.Tensor | None) -> tuple[int, int]:
    return (0, 0) if gradient is None else (id(gradient), gradient._version)


def _when_backward_ends(call: Callable[[], None]) -> None:
    if torch._C._current_graph_task_id() == -1:
        call()  # the program calls the hook itself, without DDP
    else:
        torch.autograd.Variable._execution_engine.queue_callback(call)


def _buckets_of(saved: dict[str, Any], n_gradients: int) -> list[int]:
    buckets = saved.get(BUCKETS_KEY)
    if not isinstance(buckets, torch.Tensor) or buckets.numel() != n_gradients:
        raise ValueError(
            f'the state of compression has no buckets for {n_gradients} gradients under the key '
            f'"{BUCKETS_KEY}": it was not saved by PenstockState.state_dict(), or it was saved '
            "with another model"
        )
    return [int(number) for number in buckets]
