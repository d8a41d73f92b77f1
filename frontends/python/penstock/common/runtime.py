"""The handle of the runtime, for frontends of any framework. Module gradient_set has the sets of a
runtime, module operation its operations.

These classes own the C handles and the Python memory that the C side borrows. A frontend passes
tensors as `TensorView`.
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


_SLICE_US = 200_000  # how long a wait stays away from Python, which handles signals in between

# Patterns that show that a run averages data. Other patterns also carry a frontend's own texts and
# first parameters.
_USES = frozenset((c.ALL_REDUCE, c.REDUCE_SCATTER, c.ALL_TO_ALL))


@dataclass(frozen=True)
class Topology:
    """The numbers of this process among all ranks, on its host, and across hosts."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


class BorrowedTransport(Protocol):
    """A transport that the frontend owns: the addresses of its penstock_collective and of its
    instance."""

    collective: int
    instance: int

    def close(self) -> None:
        """Closes the transport. Called when the run has ended or could not begin."""


class Introduction(Protocol):
    """The number of this process according to a framework whose ranks already had a rendezvous."""

    by: str  # the name of the framework, for messages
    rank: int
    size: int

    def gather(self, text: str, timeout_s: float, warning_s: float) -> list[str]:
        """The texts of all ranks, in the order of ranks. Collective. TimeoutError names the ranks
        that are missing after `timeout_s` seconds. A warning names the missing ranks every
        `warning_s` seconds; 0: never."""


def _gather_for(introduction: Introduction) -> Any:
    """The introduction's `gather` as a penstock_text_gather. Keep it while the core may call it."""

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

    borrowed: the transport that ``collective = "borrowed"`` selects; closed with the runtime.
    introduction: the number of this process, if the frontend knows it."""

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
        self._says_first = False  # the line about the first set was printed, or is not wanted
        self._is_used = False  # gradients or sums were exchanged
        # Counted per group of ranks, because ranks take part in different groups.
        self._n_sets: dict[tuple[int, ...], int] = {}
        self._lock = threading.Lock()
        # The variables keep the structures alive during the call that borrows them.
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
        """Returns the configuration in force, the plugins, the plans and the counters."""
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
        says_line: bool = True,
        agreement: str = "",
    ) -> GradientSet:
        """Makes a set over `ranks` (ascending; none: all ranks). Collective over these ranks. Their
        n-th set gets the name KIND.n, followed by the ranks if they are not all.

        agreement: lines of the frontend that must be equal on these ranks, such as "every = 30".
        says_line: rank 0 prints the line about the run if this is its first set. Without it the
        frontend calls `say_first_round`."""
        with self._lock:
            number = self._n_sets.get(ranks, 0)
            self._n_sets[ranks] = number + 1
        name = f"{kind}.{number}"
        if ranks:
            name += " of ranks " + ",".join(str(rank) for rank in ranks)
        made = GradientSet(
            self.library, self._handle, name, gradients, flags, scheme, ranks, agreement
        )
        with self._lock:
            # Held until close, because the garbage collector would destroy a set at different
            # moments on different ranks.
            self._sets.append(made)
            self._is_used = True
        if says_line and self._may_say_first():
            first_line.say(first_line.of_first_set(self.report(), made.report()))
        return made

    def _may_say_first(self) -> bool:
        """True once, on rank 0, unless the log is silent."""
        with self._lock:
            is_first, self._says_first = not self._says_first, True
        return is_first and self.topology.rank == 0 and self.report()["log_level"] != "error"

    def say_first_round(self, sets: Sequence[GradientSet], steps: int) -> None:
        """Prints the line about the run for sets that together exchange once in `steps` steps, on
        rank 0, if no line was printed before."""
        if self._may_say_first():
            reports = [one.report() for one in sets]
            first_line.say(first_line.of_first_round(self.report(), reports, steps))

    def counters(self) -> dict[str, int]:
        """Returns the sums of the counters over all live sets."""
        totals = {name: 0 for name in c.COUNTER_NAMES}
        with self._lock:
            sets = list(self._sets)
        for gradients in sets:
            for name, value in gradients.counters().items():
                totals[name] += value
        return totals

    def submit(self, wishes: Sequence[Wish]) -> list[Operation]:
        """Starts all given named operations, or none if one is refused."""
        self._is_used = self._is_used or any(wish.pattern in _USES for wish in wishes)
        return submit(self.library, self._handle, wishes)

    def gather_text(self, name: str, text: str) -> list[str]:
        """Returns the texts of all ranks, in the order of ranks. Collective."""
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

    def note_outside(self) -> None:
        """Notes that other ranks make a set which this rank is not in."""
        self._is_used = True

    def say_if_unused(self) -> None:
        """Prints a warning on rank 0 if the run has averaged nothing. Call it before `close`, for a
        run that has ended well."""
        if self._is_used or self.topology.rank != 0 or self.topology.size == 1:
            return
        if self.report()["log_level"] != "error":
            first_line.say(first_line.of_nothing(self.topology.size))

    def join(self, patience_us: int) -> int | None:
        """Declares that this rank has no more data. Returns the rank that joined last, or None if
        not all ranks have joined within `patience_us` microseconds; then call it again."""
        last = c_uint32()
        self.library.check(self.library.join(self._handle, patience_us, byref(last)))
        return None if last.value == c.NO_RANK else last.value

    def abort(self, reason: str) -> None:
        """Ends every wait of all ranks with an error that carries `reason`."""
        self.library.abort(self._handle, c.Str.of(reason))

    def check(self) -> None:
        """Raises HorovodInternalError if the run was given up, on this rank or another one. For
        code that makes no other call for long."""
        self.library.check(self.library.runtime_check(self._handle))

    def destroy_set(self, gradients: GradientSet) -> None:
        """Destroys one set before the runtime closes."""
        with self._lock:
            if gradients in self._sets:
                self._sets.remove(gradients)
        gradients.destroy()

    def close(self) -> None:
        """Destroys the remaining sets and ends the runtime. Operations must have been released."""
        with self._lock:
            sets, self._sets = self._sets, []
        for gradients in sets:
            gradients.destroy()
        try:
            self._leave()
        finally:
            handle, self._handle = self._handle, c_void_p()
            self.library.runtime_close(handle)
            borrowed, self._borrowed = self._borrowed, None
            if borrowed:
                borrowed.close()

    def _leave(self) -> None:
        """Rank 0 stays until the other ranks have left. A signal ends it, and with it the run."""
        all_left = c_uint32()
        try:
            while not all_left.value:
                self.library.check(
                    self.library.runtime_leave(self._handle, _SLICE_US, byref(all_left))
                )
        except BaseException as error:  # KeyboardInterrupt, or what a signal's handler raises
            self.abort(f"rank 0 did not wait any longer for the others: {error!r}")
            raise
