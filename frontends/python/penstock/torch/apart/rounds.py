"""The sequence of steps that ranks make apart: when a fragment exchanges its drift, and when the
result is applied. The sequence depends only on the number of the step, so it is equal on every
rank, whatever the speed of the ranks."""

from __future__ import annotations

import sys
import time
import weakref

import torch

from penstock.common.process_sets import ProcessSet, members_of
from penstock.common.rotation import Rotation
from penstock.torch import devices, world
from penstock.torch.apart.fragment import Fragment
from penstock.torch.apart.layers import fragments_of
from penstock.torch.apart.outer import OuterStep
from penstock.torch.apart.pace import Pace
from penstock.torch.checks import Named
from penstock.torch.first_step import LATER_ADVICE, compare_parameters

ADVICE = (
    "Call hvd.broadcast_parameters(model.state_dict(), root_rank=0) before the first step: "
    "LocalSteps adds equal updates to every rank's anchors, which start from its parameters."
)

_live: weakref.WeakSet[Rounds] = weakref.WeakSet()


class Rounds:
    """The fragments of one model with their rotation, and the outer step. All calls come from the
    thread that trains, in one order on every rank.

    named: the parameters, with names that are equal on every rank. mix: the weight of this rank's
    own parameter when a result is applied, from 0 to below 1. scheme: TOML text; empty: the run's.
    on_host: anchors and momenta lie in host memory. process_set: the ranks that exchange with each
    other; on a rank outside it there are no fragments, and the rounds do nothing. Collective over
    the set."""

    def __init__(
        self,
        named: Named,
        rotation: Rotation,
        mix: float,
        outer: OuterStep,
        scheme: str,
        on_host: bool,
        process_set: ProcessSet,
    ) -> None:
        self.rotation = rotation
        self.mix = mix
        self.outer = outer
        self.process_set = process_set
        self.pace = Pace(rotation)
        self._on_device = any(parameter.is_cuda for _, parameter in named)
        self.steps = 0  # of the optimizer, since the parameters were equal to the first anchors
        self.are_equal = True  # every parameter is equal to its anchor, on every rank
        self._is_checked = False  # the ranks have compared their anchors
        self._has_said_cause = False
        self._is_closed = False
        parts = fragments_of(named, rotation.fragments)
        self._names: list[str] = []
        self.fragments: list[Fragment] = []
        if process_set.included():
            members = members_of(process_set)
            self._names = [name for name, _ in named]
            shared = (
                f"every = {rotation.every}\nfragments = {rotation.fragments}\n"
                f"delay = {rotation.delay}\nmix = {mix!r}\nouter = {outer!r}\n"
            )
            self.fragments = [
                Fragment(part, outer, scheme, on_host, members, shared) for part in parts
            ]
            self._refuse_what_cannot_be_forgotten()
        else:
            world.current().note_outside()
        _live.add(self)

    @property
    def alive(self) -> bool:
        """False after `close`, or after the runtime was shut down."""
        return not self._is_closed and all(fragment.set.alive for fragment in self.fragments)

    def _refuse_what_cannot_be_forgotten(self) -> None:
        """An exchange is thrown away by `close`, by a load, and where a drift is not finite."""
        if world.current().report()["forget"]:
            return
        if any(fragment.set.report()["state_bytes"] > 0 for fragment in self.fragments):
            self.close()
            raise ValueError(
                "[runtime] forget = false, and the scheme of LocalSteps keeps values between "
                "exchanges: LocalSteps could not throw an exchange away, as it must when a drift "
                'is not finite; remove that line, or take memory = "none"'
            )

    def use(self, outer: OuterStep) -> None:
        """Replaces the outer step, between two steps, on every rank. ValueError if only one of the
        two has a momentum."""
        if outer.has_momentum != self.outer.has_momentum:
            raise ValueError(
                f"the outer step changes from momentum {self.outer.momentum} to {outer.momentum}: "
                "a momentum can neither begin nor end between two rounds; change its size, or lr"
            )
        self.outer = outer
        for fragment in self.fragments:
            fragment.tell(outer)

    def take_anchors(self) -> None:
        """Makes the present parameters the anchors, if there are no anchors yet."""
        for fragment in self.fragments:
            if not fragment.anchors:
                fragment.take_anchors(self.outer.has_momentum)

    def anchors(self) -> dict[str, torch.Tensor]:
        """The anchors by the names of their parameters, in the order of the parameters."""
        self.take_anchors()
        found = {
            name: anchor
            for fragment in self.fragments
            for (name, _), anchor in zip(fragment.named, fragment.anchors)
        }
        return {name: found[name] for name in self._names}

    def before_step(self) -> None:
        """Call it before every step of the optimizer. Collective before the first one."""
        if not self.fragments:
            return
        world.current().check()  # the next exchange, which would notice too, may be far away
        if self._on_device:
            devices.refuse_capture_of_steps()
        self.take_anchors()
        first = self.fragments[0].set
        if not self._is_checked or first.comparison_due():
            advice = LATER_ADVICE if self._is_checked else ADVICE
            compare_parameters(first, self.anchors().items(), advice=advice)
            self._is_checked = True

    def after_step(self) -> None:
        """Call it after every step of the optimizer, also after one that a loss scaler has left
        out, because all ranks must count the same steps."""
        self.steps += 1
        if not self.fragments:
            return
        self.pace.step_ends()
        self._exchange()
        self.pace.step_begins()

    def _exchange(self) -> None:
        """Applies the result of the fragment, and starts the fragment, whose turn is now."""
        landing, starting = (
            None if number is None else self.fragments[number]
            for number in (self.rotation.landing(self.steps), self.rotation.starting(self.steps))
        )
        if landing is not None and landing.under_way:
            self._await_and_land(landing)
        self.are_equal = False
        if starting is not None:
            self._start(starting)
            if self.rotation.delay == 0:
                self._await_and_land(starting)
                self.are_equal = len(self.fragments) == 1 and self.mix == 0

    def synchronize(self) -> None:
        """Ends all rounds now: every parameter is equal to its anchor, on every rank. The places of
        the fragments in the rotation stay. Right after the end of a round there is nothing to end:
        a drift of zero would only let the outer momentum move the anchors. Collective."""
        self.before_step()
        if self.are_equal:
            return
        for fragment in self.fragments:
            if fragment.under_way:
                self._land(fragment, self.mix)
            self._start(fragment)
        for fragment in self.fragments:
            self._land(fragment, 0.0)
        self.are_equal = True

    def _await_and_land(self, fragment: Fragment) -> None:
        """Lands a result that is due. Waits before it is due, in `synchronize`, say nothing about
        the delay."""
        began = time.perf_counter()
        fragment.wait()
        self.pace.waited(time.perf_counter() - began)
        self._land(fragment, self.mix)

    def _start(self, fragment: Fragment) -> None:
        world.current().say_first_round([one.set for one in self.fragments], self.rotation.every)
        fragment.start(f"steps = {self.steps}\nouter = {self.outer!r}\n")

    def _land(self, fragment: Fragment, mix: float) -> None:
        causes = fragment.land(self.outer, mix)
        own = [name for name in causes if name]
        if not own or self._has_said_cause:
            return
        self._has_said_cause = True
        more = f" (and {len(own) - 1} more)" if len(own) > 1 else ""
        print(
            f"penstock warning: rank {world.rank()}: parameter {own[0]}{more} is not finite after "
            f"step {self.steps} of LocalSteps. On all ranks that exchange with it {len(causes)} "
            "parameters go back to their anchors; the outer momentum and the residuals stay. The "
            "state of the inner optimizer on this rank may be not finite too: then load a "
            "checkpoint. This is said once",
            file=sys.stderr,
            flush=True,
        )

    # ---- the end ----

    def wait(self) -> None:
        """Waits for the results of exchanges under way, without applying them."""
        for fragment in self.fragments:
            fragment.wait()

    def forget(self) -> None:
        """Throws exchanges under way away, on every rank."""
        for fragment in self.fragments:
            fragment.forget()

    def restored(self, steps: int, are_equal: bool) -> None:
        """Notes that saved anchors have replaced the anchors, at this number of steps. are_equal:
        the saved parameters were equal to them."""
        self.steps = steps
        self.are_equal = are_equal
        self._is_checked = False

    def start_anew(self) -> None:
        """Starts like a new optimizer, after the program went back to a state without rounds.
        Before the first step it does nothing. Every rank must call it."""
        if self.steps == 0 or not self.alive:
            return
        self.forget()
        for fragment in self.fragments:
            fragment.let_go()
        self.restored(steps=0, are_equal=True)
        if self.fragments and world.rank() == 0:
            print(
                "penstock: LocalSteps starts a new round: the loaded state has no anchors, because "
                "optimizer.compression_state_dict() was not saved with it",
                file=sys.stderr,
                flush=True,
            )

    def close(self) -> None:
        """Throws exchanges under way away and destroys the sets. Every rank must call it."""
        _live.discard(self)
        if self.alive:
            self.forget()
            for fragment in self.fragments:
                world.current().destroy_set(fragment.set)
        self._is_closed = True


@world.before_shutdown
def _wait_for_all(aborted: bool) -> None:
    for rounds in list(_live):
        if not aborted and rounds.alive:
            rounds.wait()  # ranks that are behind still need the messages of this one
    _live.clear()
