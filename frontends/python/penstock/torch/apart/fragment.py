"""A fragment: some parameters, their anchors, and the set that exchanges their drift.

An anchor is a copy of a parameter that is equal on all ranks. The drift is the distance from the
parameter to its anchor. The set compresses and averages the drift like gradients.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from penstock import _library as c
from penstock.common.devices import HOST
from penstock.common.exceptions import HorovodInternalError
from penstock.common.gradient_set import GradientSpec
from penstock.common.operation import TensorView
from penstock.torch import devices, world
from penstock.torch.apart.outer import OuterStep, are_finite
from penstock.torch.checks import Named
from penstock.torch.tensors import DTYPES, check_may_be_written

Tensors = Sequence[torch.Tensor]
_MOST_NAMES = 20  # in a text that ranks compare
_HALVES = (torch.float16, torch.bfloat16)


def values_of(parameter: torch.Tensor) -> torch.Tensor:
    """The parameter's own memory without history; of a complex parameter two floats each."""
    plain = parameter.detach()
    return torch.view_as_real(plain) if plain.is_complex() else plain


def _check_parameter(name: str, parameter: torch.Tensor) -> None:
    check_may_be_written(f"parameter {name}", parameter)
    if values_of(parameter).dtype not in DTYPES:
        raise ValueError(
            f"parameter {name} has the element type {parameter.dtype}, expected float32, float64, "
            "float16 or bfloat16: give LocalSteps an optimizer of such parameters"
        )


class Fragment:
    """The calls of an exchange are `start`, then `wait`, then `land`, in an order that is equal on
    every rank. All calls come from the thread that trains.

    on_host: anchors, momenta and drifts lie in host memory, not on the parameters' devices. Anchors
    of 16-bit parameters have 32 bits, because an outer step may be too small for 16 bits.
    members: the world ranks that exchange, ascending; empty: all ranks.
    agreement: lines that must be equal on these ranks.
    """

    def __init__(
        self,
        named: Named,
        outer: OuterStep,
        scheme: str,
        on_host: bool,
        members: tuple[int, ...],
        agreement: str,
    ) -> None:
        self.named = named
        self._parameters = [parameter for _, parameter in named]
        for name, parameter in named:
            _check_parameter(name, parameter)
        self._places = [HOST if on_host else devices.place_of(p) for p in self._parameters]
        self._wide = [values_of(p).dtype for p in self._parameters]
        self._wide = [torch.float32 if dtype in _HALVES else dtype for dtype in self._wide]
        shapes = [tuple(values_of(p).shape) for p in self._parameters]
        specs = [
            GradientSpec(name, shape, DTYPES[dtype], place=place)
            for (name, _), shape, dtype, place in zip(named, shapes, self._wide, self._places)
        ]
        self._views = [TensorView(s.shape, s.dtype, place=s.place) for s in specs]
        self.anchors: list[torch.Tensor] = []  # empty until `take_anchors`
        self.momenta: list[torch.Tensor] = []  # empty without an outer momentum
        self.results: list[torch.Tensor] = []  # drifts, then their means; empty between exchanges
        self._rooms: dict[int, torch.Tensor] = {}  # by parameter: host memory for its drift
        self._is_there = False  # the results have arrived, and the set's step has ended
        self._gone: list[bool] = []  # by parameter: its result is not finite
        flags = c.SET_REPORTS_OUTCOME | (c.SET_OPTIMIZER_MOMENTUM if outer.has_momentum else 0)
        self.set = world.current().create_set(
            "local steps",
            devices.with_room(specs),
            flags,
            scheme,
            members,
            says_line=False,
            agreement=agreement,
        )
        self.tell(outer)

    def tell(self, outer: OuterStep) -> None:
        """Reports the outer learning rate to the set."""
        self.set.set_learning_rates([outer.lr] * len(self.named))

    @torch.no_grad()
    def take_anchors(self, with_momentum: bool) -> None:
        """Makes the present parameters the anchors, with momenta of zero."""
        self.anchors = [
            self._home(values_of(p), number).clone(memory_format=torch.contiguous_format)
            for number, p in enumerate(self._parameters)
        ]
        self.momenta = [torch.zeros_like(one) for one in self.anchors] if with_momentum else []

    def _home(self, tensor: torch.Tensor, number: int) -> torch.Tensor:
        """The tensor in the place and the element type of anchor `number`."""
        device = "cpu" if self._places[number] == HOST else tensor.device
        return tensor.to(device=device, dtype=self._wide[number])

    # ---- an exchange ----

    @property
    def under_way(self) -> bool:
        """True from `start` to `land`."""
        return bool(self.results)

    @torch.no_grad()
    def start(self, agreement: str) -> None:
        """Hands the drifts in. Returns at once; the exchange runs on threads of the runtime.

        agreement: lines that must be equal on all ranks in this exchange. They are compared beside
        it. Where they differ, `wait` raises HorovodInternalError on every rank."""
        # Memory comes first: without enough of it nothing has begun, and a later call may succeed.
        rooms = [self._room(number) for number in range(len(self._parameters))]
        self.set.step_begin()
        self.set.agree(agreement + self._frozen())
        self._is_there = False
        self.results = rooms
        with self._or_none():
            for number, parameter in enumerate(self._parameters):
                drift = self._drift(parameter, number)
                view = self._views[number]
                view.point_at(drift.data_ptr(), drift)
                on_host = self._places[number] == HOST
                self.set.ready(number, view, None if on_host else devices.current_stream(drift))

    def _frozen(self) -> str:
        names = [name for name, parameter in self.named if not parameter.requires_grad]
        if len(names) > _MOST_NAMES:
            digest = zlib.crc32("\n".join(names).encode())
            return f"frozen parameters = {len(names)} of {len(self.named)}, checksum {digest:08x}\n"
        return f"frozen parameters = {', '.join(names) or 'none'}\n"

    def _drift(self, parameter: torch.Tensor, number: int) -> torch.Tensor:
        anchor, drift = self.anchors[number], self.results[number]
        if not parameter.requires_grad:
            return drift.zero_()
        values = values_of(parameter)
        # The parameter started from the rounded anchor. What rounding took must not count as drift.
        rounded = anchor if values.dtype == anchor.dtype else anchor.to(values.dtype)
        return torch.sub(self._home(rounded, number), self._home(values, number), out=drift)

    def _room(self, number: int) -> torch.Tensor:
        """Memory for a drift. Host memory is kept for the next round: the system clears new memory
        page by page, which takes longer than the drift."""
        if self._places[number] != HOST:
            return torch.empty_like(self.anchors[number])
        if number not in self._rooms:
            self._rooms[number] = torch.empty_like(self.anchors[number])
        return self._rooms[number]

    def wait(self) -> None:
        """Waits for the results and ends the step of the set. Does nothing if they are there, or
        if no exchange is under way. After an error there is no exchange any more."""
        if self._is_there or not self.under_way:
            return
        with self._or_none():
            self._finish()

    @contextmanager
    def _or_none(self) -> Iterator[None]:
        """After an error within there is no exchange under way."""
        try:
            yield
        except HorovodInternalError:
            self.results, self._gone, self._is_there = [], [], False
            raise

    def _finish(self) -> None:
        if self.set.is_staged:
            for number, drift in enumerate(self.results):
                self._wait_for(number, drift)
        else:
            self.set.wait_all()
        try:
            self.set.agreed()
        except HorovodInternalError:
            self.set.step_end(c.STEP_FORGOTTEN)
            raise
        self._judge()
        every = list(range(len(self.named)))
        # A result that is not finite is thrown away, so its residual becomes what it was.
        self.set.optimizer_step(every, c.OPTIMIZER_BEGINS, [int(gone) for gone in self._gone])
        self.set.optimizer_step(every, c.OPTIMIZER_ENDS)
        self.set.step_end(c.STEP_AS_SEEN)
        for view in self._views:
            view.owner = None

    def _wait_for(self, number: int, drift: torch.Tensor) -> None:
        if self._places[number] == HOST:
            self.set.wait(number)
            return
        self.set.wait_stream(number, devices.current_stream(drift))
        devices.used_by_current_stream(drift)

    def _judge(self) -> None:
        self._gone = [not finite for finite in are_finite(self.results)]
        self._is_there = True

    @torch.no_grad()
    def land(self, outer: OuterStep, mix: float) -> list[str]:
        """Waits, takes the outer step and moves the parameters to mix * parameter + (1 - mix) *
        anchor. Frozen parameters stay. A parameter whose result is not finite goes back to its
        anchor, which stays. Returns an entry for each such parameter: its name, or "" if the
        parameter is finite on this rank."""
        self.wait()
        causes = []
        for number, (name, parameter) in enumerate(self.named):
            values, anchor = values_of(parameter), self.anchors[number]
            if not parameter.requires_grad:
                continue
            if self._gone[number]:
                causes.append("" if bool(torch.isfinite(values).all()) else name)
                values.copy_(anchor)
            else:
                momentum = self.momenta[number] if self.momenta else None
                outer.take(anchor, self.results[number], momentum, values, mix)
        self.results, self._gone, self._is_there = [], [], False
        return causes

    @torch.no_grad()
    def go_to_anchors(self) -> None:
        """Makes the parameters equal to the anchors, frozen ones too."""
        for parameter, anchor in zip(self._parameters, self.anchors):
            values_of(parameter).copy_(anchor)

    def forget(self) -> None:
        """Throws an exchange under way away, on every rank: state and residuals are as before
        `start`."""
        if self.under_way and not self._is_there:
            self.set.wait_all()
            self.set.step_end(c.STEP_FORGOTTEN)
        self.results, self._gone, self._is_there = [], [], False

    def let_go(self) -> None:
        """Drops anchors, momenta and what the set has left to send. No exchange is under way."""
        self.anchors, self.momenta = [], []
        self.set.let_go()

    def restore(self, anchors: Tensors, momenta: Tensors, results: Tensors) -> None:
        """Takes over copies of saved tensors, by parameter. `results` are the results of an
        exchange that had not landed, or empty."""
        self.anchors = [self._copy(one, number) for number, one in enumerate(anchors)]
        self.momenta = [self._copy(one, number) for number, one in enumerate(momenta)]
        self.results = [self._copy(one, number) for number, one in enumerate(results)]
        if self.results:
            self._judge()

    def _copy(self, saved: torch.Tensor, number: int) -> torch.Tensor:
        anchor = torch.empty(
            values_of(self._parameters[number]).shape,
            dtype=self._wide[number],
            device="cpu" if self._places[number] == HOST else self._parameters[number].device,
        )
        return anchor.copy_(saved)
