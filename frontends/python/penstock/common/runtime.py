"""The handle of the runtime, for frontends of any framework: see gradient_set for its sets, operation
for its operations.

These classes own the C handles and the Python memory the C side borrows. A frontend gives tensors
as `TensorView`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from ctypes import byref, c_uint32, c_void_p
from dataclasses import dataclass
from typing import Any, Protocol

from penstock import _library as c
from penstock.common import first_line
from penstock.common.gradient_set import GradientSet, GradientSpec, report_of
from penstock.common.operation import Memory, Operation, Wish, submit


# What nobody asks for by the way, as for words of its own or first parameters.
_USES = frozenset((c.ALL_REDUCE, c.REDUCE_SCATTER, c.ALL_TO_ALL))


@dataclass(frozen=True)
class Topology:
    """Who this process is among the others."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


class BorrowedTransport(Protocol):
    """A transport of the frontend's own: addresses of its penstock_collective and its instance."""

    collective: int
    instance: int

    def close(self) -> None:
        """The run has ended, or did not begin."""


class Introduction(Protocol):
    """Who this process is by the word of somebody whose ranks have met already."""

    by: str  # who says so, for messages
    rank: int
    size: int

    def gather(self, text: str, timeout_s: float, warning_s: float) -> list[str]:
        """The texts of all ranks in their order; collective. TimeoutError with the names of the
        ranks that have not come in `timeout_s`; a warning with them every `warning_s`, 0: never."""


def _gather_for(introduction: Introduction) -> Any:
    """Its `gather` as a penstock_text_gather, to be kept while the core may call it."""

    def gather(
        _: int, text: c.Str, timeout_us: int, warning_us: int, sink_context: int, sink: Any
    ) -> int:
        try:
            for each in introduction.gather(text.text(), timeout_us * 1e-6, warning_us * 1e-6):
                sink(sink_context, c.Str.of(each))
        except Exception as error:  # noqa: BLE001 - C cannot take an exception
            sink(sink_context, c.Str.of(f"{type(error).__name__}: {error}"))
            return c.DEADLINE_EXCEEDED if isinstance(error, TimeoutError) else c.PEER_FAILED
        return c.OK

    return c.TEXT_GATHER_SIGNATURE(gather)


class Runtime:
    """An opened runtime. Calls may come from any thread. `close` ends it.

    borrowed: what ``collective = "borrowed"`` stands for; closed with the runtime.
    introduction: who this process is, where the frontend knows it."""

    def __init__(
        self,
        config_path: str,
        config_text: str,
        frontend: str,
        borrowed: BorrowedTransport | None = None,
        introduction: Introduction | None = None,
    ) -> None:
        self.library = c.library()
        self._handle = c_void_p()
        self._borrowed = borrowed
        self._sets: list[GradientSet] = []
        self._says_first = False  # what its first set does
        self._is_used = False  # for gradients or sums
        # Counted per group of ranks, for ranks take part in different ones.
        self._n_sets: dict[tuple[int, ...], int] = {}
        self._lock = threading.Lock()
        # Named, so that the structures outlive the call that borrows them.
        gather = _gather_for(introduction) if introduction else None
        introduced = introduction and c.Introduction(
            by=c.Str.of(introduction.by),
            rank=introduction.rank,
            size=introduction.size,
            gather=ctypes.cast(gather, c_void_p),
        )
        options = c.RuntimeOptions(
            config_path=c.Str.of(config_path),
            config_text=c.Str.of(config_text),
            frontend=c.Str.of(frontend),
            borrowed_collective=borrowed.collective if borrowed else None,
            borrowed_instance=borrowed.instance if borrowed else None,
            introduction=ctypes.pointer(introduced) if introduced else None,
        )
        try:
            self.library.check(self.library.runtime_open(byref(options), byref(self._handle)))
        except BaseException:
            if borrowed:
                borrowed.close()
            raise
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
        return report_of(self.library, self.library.runtime_report, self._handle)

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
            is_first, self._is_used = not self._says_first, True
            self._says_first = True
        if is_first and self.topology.rank == 0 and (run := self.report())["log_level"] != "error":
            first_line.say(first_line.of_first_set(run, made.report()))
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

    def submit(self, wishes: Sequence[Wish]) -> list[Operation]:
        """Starts named operations, all or none."""
        self._is_used = self._is_used or any(wish.pattern in _USES for wish in wishes)
        return submit(self.library, self._handle, wishes)

    def gather_text(self, name: str, text: str) -> list[str]:
        """The texts of all ranks, in the order of ranks; collective."""
        data = text.encode("utf-8")
        memory = ctypes.create_string_buffer(data, max(1, len(data)))
        sent = Memory((len(data),), c.UINT8, ctypes.addressof(memory), memory)
        (operation,) = self.submit([Wish(name, c.ALL_GATHER, sent)])
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

    def say_if_unused(self) -> None:
        """Before `close`, of a run that has ended well: rank 0 says that it has averaged nothing."""
        if self._is_used or self.topology.rank != 0 or self.topology.size == 1:
            return
        if self.report()["log_level"] != "error":
            first_line.say(first_line.of_nothing(self.topology.size))

    def join(self, patience_us: int) -> int | None:
        """This rank's data is at an end: the rank that joined last, or None where not all have
        joined within the time; then call it again."""
        last = c_uint32()
        self.library.check(self.library.join(self._handle, patience_us, byref(last)))
        return None if last.value == c.NO_RANK else last.value

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
        if self._borrowed:
            self._borrowed.close()
            self._borrowed = None
