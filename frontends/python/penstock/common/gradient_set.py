"""The set of gradients of one optimizer or DDP object, for frontends of any framework."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from ctypes import POINTER, byref, c_double, c_int64, c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any, Callable

from penstock import _library as c
from penstock.common.exceptions import HorovodInternalError
from penstock.common.devices import HOST, Place
from penstock.common.operation import TensorView


@dataclass(frozen=True)
class GradientSpec:
    """The declaration of one gradient of a set: name, shape and element type for the core."""

    name: str
    shape: tuple[int, ...]
    dtype: int
    given_bucket: int = c.NO_BUCKET  # the framework's own bucket, if the set has such buckets
    owner: int = 0  # world rank that receives the result, in a set with SET_RESULT_AT_OWNER
    place: Place = HOST  # its place on this rank; the runtime must accept it there


class GradientSet:
    """The gradients of one optimizer. `ready` and `came` may be called from any thread; all other
    calls come from one thread at a time."""

    def __init__(
        self,
        library: c.Library,
        runtime: c_void_p,
        name: str,
        gradients: Sequence[GradientSpec],
        flags: int,
        scheme: str,
        ranks: tuple[int, ...] = (),
        agreement: str = "",
    ) -> None:
        self.library = library
        self.name = name
        self.n_gradients = len(gradients)
        self.gradient_names = [spec.name for spec in gradients]
        # True if some gradients lie on devices. Results are then waited for with wait_stream.
        self.is_staged = any(spec.place != HOST for spec in gradients)
        self._handle = c_void_p()
        self._gradient_ready = library.gradient_ready
        self._gradient_came = library.gradient_came
        self._todo: list[Any] = []  # for each gradient that can come: the answer, a pointer to it
        self._result_sink: Any = None  # must outlive its use by the core
        self.in_flight: dict[int, Any] = {}  # gradient -> memory the core may still write to
        declared = []
        for spec in gradients:
            shape = (c_int64 * max(1, len(spec.shape)))(*spec.shape)
            declared.append(
                c.GradientDeclaration(
                    name=c.Str.of(spec.name),
                    shape=ctypes.cast(shape, POINTER(c_int64)),
                    n_dims=len(spec.shape),
                    dtype=spec.dtype,
                    device_type=spec.place.device_type,
                    device_id=spec.place.device_id,
                    given_bucket=spec.given_bucket,
                    owner=spec.owner,
                )
            )
        pointers = (POINTER(c.GradientDeclaration) * max(1, len(declared)))(
            *[ctypes.pointer(one) for one in declared]
        )
        members = (c_uint32 * max(1, len(ranks)))(*ranks)
        declaration = c.SetDeclaration(
            name=c.Str.of(name),
            gradients=ctypes.cast(pointers, POINTER(POINTER(c.GradientDeclaration))),
            n_gradients=len(declared),
            ranks=ctypes.cast(members, POINTER(c_uint32)),
            n_ranks=len(ranks),
            scheme=c.Str.of(scheme),
            flags=flags,
            agreement=c.Str.of(agreement),
        )
        library.check(library.set_create(runtime, byref(declaration), byref(self._handle)))
        self.set_passes(1)

    @property
    def alive(self) -> bool:
        """False once the set has been destroyed, alone or with the runtime."""
        return bool(self._handle)

    def _call(self, function: Callable[..., int | None], *arguments: Any) -> None:
        if not self._handle:
            raise self._gone()
        self.library.check(function(self._handle, *arguments))

    def _gone(self) -> ValueError:
        return ValueError(
            f"set {self.name} is gone: the runtime was shut down; make the optimizer anew after "
            "init()"
        )

    def ready(self, index: int, view: TensorView, stream: int | None = None) -> None:
        """Hands gradient `index` in. It is complete in `view`, which must stay valid and unchanged
        until the wait for this gradient. On a device it is complete when the work that `stream` has
        now is done."""
        # Called once per gradient and step, often from autograd's threads: inlined for speed.
        self.in_flight[index] = view.owner
        if not self._handle:
            raise self._gone()
        status = self._gradient_ready(self._handle, index, view.reference, stream)
        if status:
            self.library.check(status)

    # ---- the step, for frontends whose backward hands gradients in ----

    def set_passes(self, passes: int, n_beside: int = 0) -> None:
        """Sets the number of backwards in a step; counting starts again. n_beside: number of
        gradients that are counted here but exchanged outside the set; their indices follow the
        set's own."""
        self._call(self.library.set_passes, passes, n_beside)
        todos = [c_uint32() for _ in range(self.n_gradients + n_beside)]
        self._todo = [(todo, byref(todo)) for todo in todos]

    def came(self, index: int, view: TensorView | None = None, stream: int | None = None) -> int:
        """Notes that a backward has completed gradient `index`. Returns the next action:
        GRADIENT_ADDS_UP, _HELD, _BEGIN (begin a step, then hand it in), _HAND_IN, or _IS_IN if a
        `view` was given (see `ready`) and nothing is left to do. AssertionError, like Horovod, if
        the gradient has come already."""
        # Called as often as `ready`, on any thread, so each gradient has its own variable for the
        # answer.
        todo, pointer = self._todo[index]
        if not self._handle:
            raise self._gone()
        tensor = None if view is None else view.reference
        status = self._gradient_came(self._handle, index, tensor, stream, pointer)
        if todo.value == c.GRADIENT_IS_IN:
            self.in_flight[index] = view.owner  # type: ignore[union-attr]
        if status:
            try:
                self.library.check(status)
            except HorovodInternalError as error:
                if todo.value == c.GRADIENT_REFUSED:
                    raise AssertionError(str(error)) from None
                raise
        return todo.value

    @property
    def phase(self) -> int:
        """The phase of the step: PHASE_IDLE and so on."""
        return self._step()[0]

    @property
    def has_come(self) -> bool:
        """True if a gradient has come since the last wait for results."""
        return bool(self._step()[1])

    def _step(self) -> tuple[int, int]:
        phase, came = c_uint32(c.PHASE_IDLE), c_uint32()
        if self._handle:
            self.library.check(self.library.set_phase(self._handle, byref(phase), byref(came)))
        return phase.value, came.value

    def step_begin(self) -> None:
        """Begins a step. Gradients may be handed in from now on."""
        self._call(self.library.step_begin)

    def rest(self) -> list[int]:
        """The gradients that are not handed in yet when backward is over. Hand them in, in this
        order."""
        gradients, count = (c_uint64 * max(1, len(self._todo)))(), c_uint64()
        self._call(self.library.step_rest, gradients, byref(count))
        return gradients[: count.value]

    def step_restart(self) -> None:
        """Forgets the gradients that came. Abandons a step if not all its results were waited
        for."""
        if self._handle:
            self._call(self.library.step_restart)

    # ---- gradients and results ----

    def absent(self, index: int, view: TensorView) -> None:
        """Hands gradient `index` in as zero, because this rank did not compute it. The result goes
        to `view`, in host memory."""
        self.in_flight[index] = view.owner
        self._call(self.library.gradient_absent, index, view.reference)

    def wait(self, index: int) -> None:
        """Waits for the result of one gradient. The first wait of a step closes the set to further
        gradients."""
        self._call(self.library.wait, index)
        self.in_flight.pop(index, None)

    def wait_stream(self, index: int, stream: int | None) -> None:
        """Makes `stream` wait for the result of one gradient, instead of the caller: work that is
        queued on `stream` from now on runs when the result is on the device. Otherwise like
        `wait`."""
        self._call(self.library.wait_stream, index, stream)
        self.in_flight.pop(index, None)

    def wait_all(self) -> None:
        """Waits for the results of all gradients."""
        self._call(self.library.wait_all)
        self.in_flight.clear()

    def on_result(self, tell: Callable[[list[int], Exception | None], None]) -> None:
        """Registers `tell`, which the core calls with gradients whose results are there, or which
        will get no result for the given reason. Call this between two steps only.

        `tell` is called on any thread, and on several at a time. It must not call the runtime and
        must not keep the set alive, because the core holds `tell` until the set ends."""

        def sink(_: Any, gradients: Any, count: int, error: int | None) -> None:
            tell(gradients[:count], self.library.exception_of(error) if error else None)

        self._result_sink = c.RESULT_SINK_SIGNATURE(sink)
        self._call(self.library.set_on_result, None, self._result_sink)

    def set_given_buckets(self, buckets: Sequence[int]) -> None:
        """Assigns gradient i to the framework's bucket `buckets[i]` from the next step on.
        Collective, between two steps."""
        given = (c_uint32 * max(1, len(buckets)))(*buckets)
        self._call(self.library.set_given_buckets, given, len(buckets))

    def defers(self) -> int:
        """What `backward_end` leaves to do: DEFERS_NOTHING, DEFERS_LEGS (the plan in force leaves
        legs for the next forward) or DEFERS_STEP (the results belong to the next step)."""
        answer = c_uint32()
        self._call(self.library.set_defers, byref(answer))
        return answer.value

    def backward_end(self) -> None:
        """For deferred updates: declares backward over and launches the legs of the next
        forward."""
        self._call(self.library.backward_end)

    def flush(self) -> None:
        """Waits until no leg of any step is under way."""
        self._call(self.library.flush)

    def optimizer_step(
        self, gradients: Sequence[int], moment: int, gone: Sequence[int] | None = None
    ) -> None:
        """Reports that an optimizer of these gradients' parameters is at `moment`
        (OPTIMIZER_BEGINS, _ENDS or _LEAVES_OUT). gone[i] is 1 if gradient gradients[i] does not
        hold its result; None: every gradient holds its result."""
        count = len(gradients)
        self._call(
            self.library.optimizer_step,
            (c_uint64 * max(1, count))(*gradients),
            None if gone is None else (c_uint8 * max(1, count))(*gone),
            count,
            moment,
        )

    def results_gone(self, gone: Sequence[int]) -> None:
        """Reports lost results when no optimizer has stepped: gone[i] is 1 if gradient i no longer
        holds its result."""
        self._call(self.library.results_gone, (c_uint8 * max(1, len(gone)))(*gone), len(gone))

    def outcome_open(self) -> bool:
        """True if the outcome of the step's results is open and inspecting the gradients would show
        it."""
        answer = c_uint32()
        self._call(self.library.outcome_open, byref(answer))
        return bool(answer.value)

    def step_end(self, outcome: int) -> None:
        """Ends the step as STEP_APPLIED, as STEP_FORGOTTEN, or, from the reported observations, as
        STEP_AS_SEEN. All ranks must pass an equal outcome."""
        self._call(self.library.step_end, int(outcome))

    def let_go(self) -> None:
        """Zeroes the values that memories keep. Every rank must call it. Forgets a step under
        way."""
        self._call(self.library.set_let_go)

    def set_learning_rates(self, rates: Sequence[float]) -> None:
        """Sets the learning rate of each gradient from the next step on. nan: the gradient has no
        learning rate, or its rate has not changed."""
        self._call(self.library.set_learning_rates, (c_double * len(rates))(*rates), len(rates))

    def agree(self, text: str) -> None:
        """Compares lines with those of the set's other ranks, beside the step under way, without
        waiting. `agreed` has the answer."""
        self._call(self.library.set_agree, c.Str.of(text))

    def agreed(self) -> None:
        """Waits until these lines are compared. HorovodInternalError on every rank where they
        differ, with the first line that differs. Then every rank ends the step as forgotten."""
        self._call(self.library.set_agreed)

    def compare_parameters(self, named: Sequence[tuple[str, int]], advice: str) -> None:
        """Compares names and checksums of parameters over the ranks. If they differ,
        check_parameters of [runtime] decides: a warning, or HorovodInternalError on every rank.
        Collective, between two steps. advice: the remedy, as a sentence."""
        names = [c.Str.of(name) for name, _ in named]
        self._call(
            self.library.set_compare_parameters,
            (c.Str * max(1, len(names)))(*names),
            (c_uint64 * max(1, len(names)))(*(number for _, number in named)),
            len(names),
            c.Str.of(advice),
        )

    def comparison_due(self) -> bool:
        """Whether [runtime] check_parameters_every asks for a comparison before the next step."""
        due = c_uint32()
        self._call(self.library.set_comparison_due, byref(due))
        return bool(due.value)

    def set_forward_times(self, first_use_us: Sequence[float], forward_us: float) -> None:
        """Reports times of a forward, in microseconds after its start: the first use of each
        parameter (negative: not used), and the end of the forward."""
        times = (c_double * len(first_use_us))(*first_use_us)
        self._call(self.library.set_forward_times, times, len(first_use_us), forward_us)

    def set_momentum(self) -> None:
        """Declares that the optimizer applies momentum from now on. HorovodInternalError if the
        compression also applies momentum."""
        self._call(self.library.set_momentum)

    def set_grad_scale(self, scale: float) -> None:
        """Sets the loss scale that gradients carry from the next step on."""
        self._call(self.library.set_grad_scale, scale)

    def save(self) -> bytes:
        """Returns the state of the set on this rank."""
        pieces: list[bytes] = []
        sink = c.BYTES_SINK_SIGNATURE(
            lambda _, data, size: pieces.append(ctypes.string_at(data, size) if size else b"")
        )
        self._call(self.library.set_save, None, sink)
        return b"".join(pieces)

    def load(self, data: bytes) -> None:
        """Restores a state that `save` returned on this rank."""
        self._call(self.library.set_load, data, len(data))

    def load_shards(self, shards: Sequence[bytes]) -> str:
        """Restores the states that `save` returned on all ranks of a run, in the order of its
        ranks. That run may have had another number of ranks. Collective. Returns a line for each
        kind of state with the treatment of that state."""
        texts: list[str] = []
        sink = c.TEXT_SINK_SIGNATURE(lambda _, text: texts.append(text.text()))
        data = (c_void_p * max(1, len(shards)))(
            *[ctypes.cast(ctypes.c_char_p(shard), c_void_p).value for shard in shards]
        )
        sizes = (c_uint64 * max(1, len(shards)))(*[len(shard) for shard in shards])
        self._call(self.library.set_load_shards, data, sizes, len(shards), None, sink)
        return "".join(texts)

    def reset(self) -> None:
        """Zeroes all state. Call it between two steps. Collective."""
        self._call(self.library.set_reset)
        self.in_flight.clear()

    def report(self) -> dict[str, Any]:
        """Returns the set's plan, and its counters per gradient and per step."""
        if not self._handle:
            raise self._gone()
        return report_of(self.library, self.library.set_report, self._handle)

    def counters(self) -> dict[str, int]:
        """Returns the totals since the set was made, by the field names of penstock_counters."""
        found = c.Counters()
        self._call(self.library.set_counters, byref(found))
        return {name: getattr(found, name) for name in c.COUNTER_NAMES}

    def destroy(self) -> None:
        """Destroys the set. A second call does nothing."""
        handle, self._handle = self._handle, c_void_p()
        if handle:
            self.library.set_destroy(handle)
        self.in_flight.clear()


def report_of(
    library: c.Library, function: Callable[..., int | None], handle: c_void_p
) -> dict[str, Any]:
    """The report of the runtime or of a set, parsed from its JSON."""
    texts: list[str] = []
    sink = c.TEXT_SINK_SIGNATURE(lambda _, text: texts.append(text.text()))
    library.check(function(handle, None, sink))
    return json.loads("".join(texts) or "{}")
