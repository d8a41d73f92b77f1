"""Handles of the runtime, its sets and its operations, for frontends of any framework.

These classes own the C handles and the Python memory the C side borrows. A frontend gives tensors
as `TensorView`.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Sequence
from ctypes import POINTER, byref, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any, Callable

from penstock import _library as c
from penstock.common.operation import Operation, TensorView


@dataclass(frozen=True)
class GradientSpec:
    """One gradient of a set: name, shape and element type as they go to the core."""

    name: str
    shape: tuple[int, ...]
    dtype: int


@dataclass(frozen=True)
class Topology:
    """Who this process is among the others."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


class Runtime:
    """An opened runtime. Calls may come from any thread. `close` ends it."""

    def __init__(self, config_path: str, config_text: str, frontend: str) -> None:
        self.library = c.library()
        self._handle = c_void_p()
        self._sets: list[GradientSet] = []
        # Counted per group of ranks, for ranks take part in different ones.
        self._n_sets: dict[tuple[int, ...], int] = {}
        self._lock = threading.Lock()
        # Named, so that the structures outlive the call that borrows them.
        options = c.RuntimeOptions(
            config_path=c.Str.of(config_path),
            config_text=c.Str.of(config_text),
            frontend=c.Str.of(frontend),
        )
        self.library.check(self.library.runtime_open(byref(options), byref(self._handle)))
        found = c.Topology()
        self.library.check(self.library.runtime_topology(self._handle, byref(found)))
        self.topology = Topology(
            found.rank,
            found.size,
            found.local_rank,
            found.local_size,
            found.cross_rank,
            found.cross_size,
        )

    def report(self) -> dict[str, Any]:
        """Configuration in force, plugins, plans and counters."""
        return _report(self.library, self.library.runtime_report, self._handle)

    def timeline(self, path: str) -> None:
        """Starts a Chrome trace at `path`; an empty path ends it."""
        self.library.check(self.library.timeline(self._handle, c.Str.of(path)))

    def create_set(
        self,
        kind: str,
        gradients: Sequence[GradientSpec],
        flags: int,
        scheme: str = "",
        ranks: tuple[int, ...] = (),
    ) -> GradientSet:
        """Makes a set over `ranks` (ascending; none: all); collective over them. The n-th set of
        these ranks gets the name KIND.n, with the ranks when they are not all."""
        with self._lock:
            number = self._n_sets.get(ranks, 0)
            self._n_sets[ranks] = number + 1
        name = f"{kind}.{number}"
        if ranks:
            name += " of ranks " + ",".join(str(rank) for rank in ranks)
        made = GradientSet(self.library, self._handle, name, gradients, flags, scheme, ranks)
        with self._lock:
            # Held until close: destroying a set when the garbage collector likes would differ
            # between ranks.
            self._sets.append(made)
        return made

    def counters(self) -> dict[str, int]:
        """The counters of all live sets, added up."""
        totals = {name: 0 for name in c.COUNTER_NAMES}
        with self._lock:
            sets = list(self._sets)
        for gradients in sets:
            for name, value in gradients.counters().items():
                totals[name] += value
        return totals

    def submit(
        self,
        name: str,
        pattern: int,
        view: TensorView | None,
        output: TensorView | None = None,
        ranks: Sequence[int] = (),
        splits: Sequence[int] = (),
        **fields: Any,
    ) -> Operation:
        """Starts a named operation.

        output: where the result goes, which may be `view`; None: it is asked for later.
        ranks: world ranks that take part, ascending; none: all.
        splits: of an all-to-all, rows for each of them; none: equal parts.
        """
        return Operation(
            self.library, self._handle, name, pattern, view, output, ranks, splits, fields
        )

    def gather_text(self, name: str, text: str) -> list[str]:
        """The texts of all ranks, in the order of ranks; collective."""
        data = text.encode("utf-8")
        memory = ctypes.create_string_buffer(data, max(1, len(data)))
        view = TensorView((len(data),), c.UINT8, ctypes.addressof(memory), memory)
        operation = self.submit(name, c.ALL_GATHER, view)
        try:
            operation.wait()
            address, n_bytes, rows = operation.result()
            gathered = ctypes.string_at(address, n_bytes) if n_bytes else b""
        finally:
            operation.release()
        texts = []
        for row in rows:
            texts.append(gathered[:row].decode("utf-8"))
            gathered = gathered[row:]
        return texts

    def abort(self, reason: str) -> None:
        """Ends every wait of this rank and of the others in an error that carries `reason`."""
        self.library.abort(self._handle, c.Str.of(reason))

    def destroy_set(self, gradients: GradientSet) -> None:
        """Destroys one set before the runtime closes."""
        with self._lock:
            if gradients in self._sets:
                self._sets.remove(gradients)
        gradients.destroy()

    def close(self) -> None:
        """Destroys what sets are left and ends the runtime. Operations must have been released."""
        with self._lock:
            sets, self._sets = self._sets, []
        for gradients in sets:
            gradients.destroy()
        handle, self._handle = self._handle, c_void_p()
        self.library.runtime_close(handle)


class GradientSet:
    """The gradients of one optimizer. All calls but `ready` come from one thread at a time."""

    def __init__(
        self,
        library: c.Library,
        runtime: c_void_p,
        name: str,
        gradients: Sequence[GradientSpec],
        flags: int,
        scheme: str,
        ranks: tuple[int, ...] = (),
    ) -> None:
        self.library = library
        self.name = name
        self._handle = c_void_p()
        self._gradient_ready = library.gradient_ready
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
                    device_type=c.DEVICE_CPU,
                    given_bucket=c.NO_BUCKET,
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
        )
        library.check(library.set_create(runtime, byref(declaration), byref(self._handle)))

    @property
    def alive(self) -> bool:
        """False once the set was destroyed, by itself or with the runtime."""
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

    def ready(self, index: int, view: TensorView) -> None:
        """Gradient `index` is complete in `view`, which stays valid and untouched until the wait
        for it."""
        # Called once per gradient and step, often from autograd's threads: spelled out for speed.
        self.in_flight[index] = view.owner
        if not self._handle:
            raise self._gone()
        status = self._gradient_ready(self._handle, index, view.reference, None)
        if status:
            self.library.check(status)

    def absent(self, index: int, view: TensorView) -> None:
        """Gradient `index` was not computed here: it counts as zero; the result goes to `view`."""
        self.in_flight[index] = view.owner
        self._call(self.library.gradient_absent, index, view.reference)

    def wait(self, index: int) -> None:
        """Waits for the result of one gradient; the first wait of a step closes the set."""
        self._call(self.library.wait, index)
        self.in_flight.pop(index, None)

    def wait_all(self) -> None:
        """Waits for the results of all gradients."""
        self._call(self.library.wait_all)
        self.in_flight.clear()

    def defers(self) -> bool:
        """True when the plan in force leaves legs for the next forward."""
        answer = c_uint32()
        self._call(self.library.set_defers, byref(answer))
        return bool(answer.value)

    def backward_end(self) -> None:
        """Deferral: backward is over; launches the legs of the next forward."""
        self._call(self.library.backward_end)

    def flush(self) -> None:
        """Waits until no leg of any step is under way."""
        self._call(self.library.flush)

    def step_end(self, applied: bool) -> None:
        """Ends the step; `applied` is the same on every rank."""
        self._call(self.library.step_end, int(applied))

    def set_learning_rate(self, index: int, rate: float) -> None:
        """The learning rate of a gradient from the next step on."""
        self._call(self.library.set_learning_rate, index, rate)

    def set_momentum(self) -> None:
        """The optimizer applies momentum from now on. HorovodInternalError where compression does,
        too."""
        self._call(self.library.set_momentum)

    def set_grad_scale(self, scale: float) -> None:
        """The loss scale that gradients carry from the next step on."""
        self._call(self.library.set_grad_scale, scale)

    def save(self) -> bytes:
        """The state of the set on this rank."""
        pieces: list[bytes] = []
        sink = c.BYTES_SINK_SIGNATURE(
            lambda _, data, size: pieces.append(ctypes.string_at(data, size) if size else b"")
        )
        self._call(self.library.set_save, None, sink)
        return b"".join(pieces)

    def load(self, data: bytes) -> None:
        """Restores what `save` gave on this rank."""
        self._call(self.library.set_load, data, len(data))

    def reset(self) -> None:
        """Zeroes all state between two steps; collective."""
        self._call(self.library.set_reset)
        self.in_flight.clear()

    def report(self) -> dict[str, Any]:
        """The set's plan, and counters per gradient and step."""
        if not self._handle:
            raise self._gone()
        return _report(self.library, self.library.set_report, self._handle)

    def counters(self) -> dict[str, int]:
        """Totals since the set was made, by the names of penstock_counters."""
        found = c.Counters()
        self._call(self.library.set_counters, byref(found))
        return {name: getattr(found, name) for name in c.COUNTER_NAMES}

    def destroy(self) -> None:
        """Ends the set; twice is fine."""
        handle, self._handle = self._handle, c_void_p()
        if handle:
            self.library.set_destroy(handle)
        self.in_flight.clear()


def _report(
    library: c.Library, function: Callable[..., int | None], handle: c_void_p
) -> dict[str, Any]:
    texts: list[str] = []
    sink = c.TEXT_SINK_SIGNATURE(lambda _, text: texts.append(text.text()))
    library.check(function(handle, None, sink))
    return json.loads("".join(texts) or "{}")
