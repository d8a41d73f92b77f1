"""The buckets of one DistributedDataParallel object between backward and update: handed to a set of
the core as DDP fills them, and given back by futures.

The set is made when the first backward has shown all buckets, so in that step nothing leaves before
backward is over. When DDP puts its buckets together anew, the set follows at the next step:
gradients go to the core one by one, by parameter, and may come in any buckets meanwhile.

On the CPU the core tells when a result is there. On devices it would tell that only when its copy
has ended there, and nobody need wait for that: the streams do, once the last bucket is handed in.
Threads: `hand_in` is called by autograd, `arrived` by the core; all else by the user's thread,
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
from penstock.torch.buckets import Bucket, check_world, memory_shape, mean_of_sparse, numbered
from penstock.torch.checks import Named
from penstock.torch.options import OptimizerOptions
from penstock.torch.loss_scaling import scaler_above, warn_of_untold_scale
from penstock.torch.outcome import StepOutcome
from penstock.torch.ownership import check_unclaimed
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
        self._opened = False  # the runtime, with this scheme
        self._ranks: tuple[int, ...] = ()  # of the set; none for all
        self._named = named
        self._stands_in = False  # in the step under way
        self._process_group = process_group
        self._held: list[Bucket] = []  # of the first backward
        self._saved: dict[str, torch.Tensor] = {}  # loaded before there was a set
        self._shards: list[dict[str, torch.Tensor]] = []  # of every rank, likewise
        self.loaded = ""  # what became of them
        self._parameters: list[torch.Tensor] = []  # by number in the set
        self.indices: dict[int, int] = {}  # the same by id
        self._views: list[TensorView] = []
        self._dtypes: list[torch.dtype] = []  # of gradients, as the core was told
        self._given: list[int] = []  # the buckets that the core knows, by number of the gradient
        self._seen: list[int] = []  # those of the last backward
        self._order: list[int] = []  # in which it handed them in
        self._given_order: list[int] = []  # when the core heard of its buckets
        self._where: list[int] = []  # the addresses of the gradients in their buckets
        self._lock = threading.Lock()
        self._awaited: dict[int, Bucket] = {}  # by number of the gradient
        # On devices: handed in, not waited for by a stream.
        self._staged: list[tuple[Bucket, list[int]]] = []

    # ---- backward ----

    def hand_in(self, given: dist.GradBucket) -> torch.futures.Future:
        """A bucket is complete on this rank; the future gets the mean in its own memory."""
        bucket = Bucket(given)
        if bucket.place != HOST:
            devices.refuse_capture()
        if bucket.number == 0:
            self._held.clear()
            if self.set is not None:
                self._begin()
            # Outside of a backward DDP's join() stands in for a rank that has no more data.
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
        """Notes, when DDP has given all results out, which gradients hold theirs: that of a
        parameter that no rank has used stays as it was (find_unused_parameters)."""
        before = [_mark(parameter.grad) for parameter in self._parameters]
        this = weakref.ref(self)

        def given_out() -> None:
            exchange = this()
            if exchange is not None:
                exchange._given_out(before)

        # DDP's own callback, which does it, comes behind the first of these.
        _when_backward_ends(lambda: _when_backward_ends(given_out))

    def _given_out(self, before: Sequence[tuple[int, int]]) -> None:
        self._outcome.landed(
            number
            for number, parameter in enumerate(self._parameters)
            if parameter.grad is not None
            and _mark(parameter.grad) == before[number]
            and parameter.grad.data_ptr() != self._where[number]  # a view of its bucket
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
        # A bucket has one type, which need not be that of its parameters: torch's wrappers cast it.
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
        """The core: results of these gradients are there, or will not come."""
        ended = []
        with self._lock:
            for number in numbers:
                bucket = self._awaited.pop(number, None)
                if bucket is None or bucket.left == 0:  # one of its gradients has failed before
                    continue
                bucket.left = bucket.left - 1 if error is None else 0
                if bucket.left == 0:
                    ended.append(bucket)
        for bucket in ended:
            bucket.finish(error if error is not None else bucket.buffer)

    def _let_streams_wait(self) -> None:
        """On devices, when all buckets are handed in: gives their results to DDP, which may still
        be on their way to the device. Returns when the exchange is over."""
        staged, self._staged = self._staged, []
        for bucket, numbers in staged:
            result: torch.Tensor | Exception = bucket.buffer
            try:
                for number in numbers:
                    self._let_stream_wait(number, bucket)
            except Exception as error:  # noqa: BLE001 - it comes out of backward() by the future
                result = error
            bucket.finish(result)

    def _let_stream_wait(self, number: int, bucket: Bucket) -> None:
        assert self.set is not None
        if bucket.place == HOST:
            self.set.wait(number)
            return
        # The future takes note of the current stream when it is set.
        self.set.wait_stream(number, devices.current_stream(bucket.buffer))
        # DDP lets go of its buffers when it makes others, on whatever stream.
        devices.used_by_current_stream(bucket.buffer)

    # ---- the set ----

    def _make_set(self, held: Sequence[Bucket]) -> None:
        """Collective over the ranks of the process group."""
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
        this = weakref.ref(self)  # the core holds what it calls until the runtime ends

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
        self._outcome.follow(made, self._parameters)

    # ---- between two steps ----

    @property
    def open(self) -> bool:
        """Gradients of a step were handed in, and its end is not told."""
        return self._outcome.is_open

    def end(self, outcome: int = c.STEP_AS_SEEN) -> None:
        """Ends the step under way, if there is one."""
        self._wait()
        if self._stands_in and outcome == c.STEP_AS_SEEN:
            outcome = c.STEP_APPLIED  # as by the ranks that it stands in for
        self._outcome.end(outcome)

    def _wait(self) -> None:
        if self.open and self.set is not None and (not self.set.is_staged or self._staged):
            self.set.wait_all()
            self._staged.clear()

    def let_go(self) -> None:
        """Zeroes what memories keep; a step that is not used yet is forgotten."""
        if self.set is not None:
            self._wait()
            self._outcome.discard()
            self.set.let_go()

    def save(self) -> dict[str, torch.Tensor]:
        """What compression keeps on this rank, with the buckets that it knows. Of a step that no
        optimizer has used yet nothing is in it, and the step goes on."""
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
        """Restores what `save` gave, now or when there is a set."""
        if self.set is None:
            self._saved, self._shards = dict(saved), []
        elif saved:
            self._wait()
            self._outcome.discard()
            self._given = _buckets_of(saved, len(self._parameters))
            self.set.set_given_buckets(self._given)
            self.set.load(bytes_of(saved.get(KEY), KEY))

    def load_shards(self, states: Sequence[dict[str, Any]]) -> str:
        """Restores what `save` gave on every rank, perhaps of another number, now or when there is
        a set; collective. Returns what became of each kind of state, a line for each."""
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
        """Then the plan is the saved one, which goes by the saved buckets; another number of ranks
        makes a plan anew, by the buckets that there are."""
        return len(states) == (len(ranks) or world.size())

    def close(self) -> None:
        """Ends the set; collective."""
        self._outcome.unfollow()
        if self.set is not None and self.set.alive:
            world.current().destroy_set(self.set)

    # ---- optimizers ----

    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """HorovodInternalError where it has a momentum that a memory of the set has, too."""
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
        call()  # no DDP but somebody who calls the hook by hand
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
