"""One step late (``apply = "previous"`` of [scheme]): in step t the optimizer applies the mean of
step t - 1. The exchange of step t therefore has the whole forward of step t + 1 and its backward up
to the first complete gradient.

The equation is that of delayed SGD with a delay of one, as in Zinkevich, Smola and Langford, "Slow
Learners are Fast", NeurIPS 2009: x(t + 1) = x(t) - lr * mean of g(t - 1).

At step() the gradients of step t, which are under way, leave `p.grad`, and the mean of step t - 1
takes their place. In the first step nothing takes their place: `p.grad` is None, and torch's
optimizers leave such parameters unchanged. The mean is promised to the optimizer when the next step
begins, so a set counts it as applied; a mean that the program throws away afterwards is lost. Every
rank must throw it away; ranks that differ get an error some steps later.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable

import torch

from penstock.common.exceptions import HorovodInternalError
from penstock.torch import outstanding, world
from penstock.torch import state as compression_state
from penstock.torch.gradients import GradientSlot, Slot
from penstock.torch.loss_scaling import asked_by_scaler
from penstock.torch.tensors import zero_gradient

if TYPE_CHECKING:
    from penstock.torch.exchange import GradientExchange

_APPLY = 'scheme.apply = "previous"'
COMPARED_EVERY = 8  # steps, of which the ranks compare how many means were applied


class LateMeans:
    """The gradients of one optimizer that are under way between two steps, and their means.

    apply: takes the step of the user's optimizer with the gradients in `p.grad`.

    All calls come from the thread that trains, except `settle`, which autograd's threads call too.
    """

    def __init__(self, exchange: GradientExchange, apply: Callable[[], None]) -> None:
        self._exchange = exchange
        self._apply = apply
        self.outstanding: dict[int, Slot] = {}  # always empty: forward needs no update
        self._under_way = False  # gradients were handed in, and the step of the set is not over
        self._means: list[torch.Tensor] = []  # in the order of the slots; empty: there are none
        # Exchanges, and the means of these that the optimizer has applied. Ranks compare both.
        self._n_exchanges = self._n_applied = 0
        self._holds = False  # means are in p.grad, and no step of the optimizer has used them
        self._is_left_alone = False
        exchange.deferral = self
        # The set must not count steps of the optimizer as steps with the results under way.
        exchange.outcome.muted = True
        for slot in exchange.slots:
            assert isinstance(slot, GradientSlot)
            slot.travel_apart()
        outstanding.live.add(self)

    def unwatch(self) -> None:
        """Takes no further part in flushes of all optimizers."""
        outstanding.live.discard(self)

    @property
    def is_between_steps(self) -> bool:
        """False from the first gradient of a backward to the optimizer's step."""
        return not self._exchange.touched and not self._holds

    # ---- a step ----

    @torch.no_grad()
    def exchange_means(self) -> None:
        """Sends the gradients of this step off and puts the means of the step before into
        `p.grad`. Does nothing if they are there already."""
        exchange = self._exchange
        exchange.raise_error()
        if self._holds and not exchange.touched:
            return
        with self.left_alone():
            exchange.close_step()
        try:
            exchange.set.backward_end()
        except HorovodInternalError as error:
            exchange.lose(error)
            raise
        means = self._means or [None] * len(exchange.slots)
        for slot, mean in zip(exchange.slots, means):
            slot.parameter.grad, slot.given = mean, None
        self._means, self._under_way, self._holds = [], True, True
        self._compare_with_ranks()

    def _compare_with_ranks(self) -> None:
        """The set counts every mean as applied. So once in COMPARED_EVERY steps the ranks compare,
        beside the exchange, how many their optimizers have applied."""
        self._n_exchanges += 1
        if self._n_exchanges % COMPARED_EVERY == 0:
            self._exchange.set.agree(
                f"means of {self._n_exchanges} steps that the optimizer has applied: "
                f"{self._n_applied}\n"
            )

    def throw_held_away(self) -> None:
        """Notes that the means in `p.grad` were thrown away."""
        self._holds = False

    def defer(self) -> None:
        """Takes the step of the optimizer. It is called when backward is over."""
        self.exchange_means()
        self.use()

    def use(self) -> None:
        """Takes the step of the user's optimizer with the means in `p.grad`."""
        self._apply()
        self._holds = False
        self._n_applied += 1

    @torch.no_grad()
    def settle(self) -> None:
        """Waits for the results of the last step, which then ends. Called before the first gradient
        of a step."""
        if not self._under_way:
            return
        exchange = self._exchange
        try:
            if not exchange.set.is_staged:
                exchange.set.wait_all()
            else:
                for slot in exchange.slots:
                    slot.wait(exchange.set)
            exchange.set.agreed()
        except HorovodInternalError as error:
            exchange.lose(error)
            raise
        self._under_way = False
        self._means = [_taken(slot) for slot in exchange.slots]

    # ---- between two steps ----

    def flush(self) -> None:
        """Takes a further step of the optimizer with the mean that is under way. Does nothing if
        there is none, or between backward and step()."""
        if self._is_left_alone or not self.is_between_steps or self._exchange.failed:
            return
        self.settle()
        if not self._means:
            return
        for slot, mean in zip(self._exchange.slots, self._means):
            slot.parameter.grad = mean
        self._means = []
        self._apply()
        self._n_applied += 1

    @contextmanager
    def left_alone(self) -> Iterator[None]:
        """In this context `flush` does nothing."""
        self._is_left_alone = True
        try:
            yield
        finally:
            self._is_left_alone = False

    def forget(self) -> None:
        """Throws the means away, and the results under way."""
        for slot in self._exchange.slots:
            slot.forget()
        self._means, self._under_way, self._holds = [], False, False

    def check_unused(self, slot: Slot) -> None:
        """Does nothing, because no forward needs an update."""

    def slots_changed(self) -> None:
        """Raises ValueError: the exchange has found sparse gradients and exchanges them beside the
        set, at once."""
        raise ValueError(
            f"some gradients are sparse, and {_APPLY} does not exchange sparse gradients: make "
            "their layers dense (torch.nn.Embedding with sparse=False), or remove the key"
        )

    # ---- saved means ----

    def means(self) -> dict[str, torch.Tensor]:
        """Copies of the means that the next step will apply, by the names of the gradients. Waits
        for results under way. Every rank must call it between two steps."""
        if self._holds:
            raise AssertionError(
                f"the state is saved between synchronize() and step(), but with {_APPLY} the means "
                "are in the gradients then: save after optimizer.step()"
            )
        self.settle()
        return {slot.name: mean.clone() for slot, mean in zip(self._exchange.slots, self._means)}

    def check(self, means: dict[str, torch.Tensor]) -> None:
        """ValueError if `means` are not those of all gradients of this exchange, or empty."""
        shapes = {slot.name: tuple(slot.parameter.shape) for slot in self._exchange.slots}
        found = {name: tuple(getattr(mean, "shape", ())) for name, mean in means.items()}
        if not means or found == shapes:
            return
        wrong = [name for name in sorted({*found, *shapes}) if found.get(name) != shapes.get(name)]
        raise ValueError(
            f'the saved mean of "{wrong[0]}" has shape {found.get(wrong[0], "none")}, expected '
            f"{shapes.get(wrong[0], 'none')}: the state is of another model, or is incomplete"
        )

    def restore(self, means: dict[str, torch.Tensor]) -> None:
        """Takes over copies of these means, which the next step applies. Empty: it applies none."""
        self.forget()
        if means:
            self._means = [
                zero_gradient(slot.parameter).copy_(means[slot.name])
                for slot in self._exchange.slots
            ]


def _taken(slot: Slot) -> torch.Tensor:
    slot.finish()
    mean, slot.gradient = slot.gradient, None
    assert mean is not None
    return mean


class LateMethods:
    """The methods of DistributedOptimizer that differ if means are applied one step late.
    ``super()`` here is DistributedOptimizer without this difference."""

    _exchange: GradientExchange
    _deferred: LateMeans

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """torch's parameter groups. ValueError if a torch ``GradScaler`` asks for them, because the
        means carry the loss scale of the step before."""
        if self.__dict__.get("_should_synchronize") and asked_by_scaler(sys._getframe(1)):
            raise ValueError(_refusal("a GradScaler would divide the mean of a step by the scale of"))
        return self.__dict__["param_groups"]

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.__dict__["param_groups"] = groups

    def set_grad_scale(self, scale: float) -> None:
        """Raises ValueError, because the means carry the loss scale of the step before."""
        del scale
        raise ValueError(_refusal("a loss scale would belong to the mean of"))

    def synchronize(self) -> None:
        """Sends the gradients of this step off. Then every ``p.grad`` holds the mean of the step
        before, for example to clip it, or None in the first step."""
        self._deferred.exchange_means()

    def zero_grad(self, *arguments: Any, **keywords: Any) -> None:
        """Zeroes the gradients, as without a delay. After ``synchronize()`` this throws the mean of
        the step before away."""
        super().zero_grad(*arguments, **keywords)  # type: ignore[misc]
        self._deferred.throw_held_away()

    def _take_step(self, closure: Any) -> None:
        if closure is not None:
            raise ValueError(
                "optimizer.step() got a closure, which computes the gradients of one step several "
                f"times; with {_APPLY} their mean comes a step later: use an optimizer without "
                "closure, or remove the key"
            )
        self._deferred.use()

    def skip_step(self) -> None:
        """Raises ValueError, because the gradients of the next step follow from this one."""
        raise ValueError(
            f"optimizer.skip_step() cannot forget a step with {_APPLY}: its mean arrives when the "
            "next gradients are under way. To leave a mean out: optimizer.synchronize(), then "
            "optimizer.zero_grad() instead of step(); the memories of the scheme keep its effect, "
            "and optimizer.let_go() empties them"
        )

    def flush(self) -> None:
        """Takes a further step of the optimizer with the last mean, which is still under way: at
        the end of training, or before the parameters are used for something else. The next step
        then applies nothing, like the first step. Every rank must call it, after ``step()``."""
        if not self._deferred.is_between_steps:
            raise AssertionError(
                "optimizer.flush() was called after loss.backward() or synchronize(), and before "
                "optimizer.step()"
            )
        self._deferred.flush()

    def close(self) -> None:
        """Applies the mean under way and removes all hooks. The object then acts like the user's
        optimizer. Every rank must call it."""
        self._deferred.flush()
        super().close()  # type: ignore[misc]

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of the user's optimizer alone. ``compression_state_dict()`` has the
        mean that is under way."""
        with self._deferred.left_alone():
            return super().state_dict()  # type: ignore[misc]

    def compression_state_dict(self) -> dict[str, torch.Tensor]:
        """Returns the state of compression on this rank under the key "penstock", and copies of the
        means that the next step will apply under "penstock.mean.NAME". Waits for the exchange under
        way. Each rank saves and loads its own, after ``step()``."""
        means = self._deferred.means()
        saved = compression_state.save(self._exchange)
        saved[compression_state.MEANS_KEY] = torch.tensor(len(means))
        return {**saved, **{f"{compression_state.MEAN_KEY}{n}": one for n, one in means.items()}}

    def load_compression_state_dict(self, state_dict: dict[str, torch.Tensor]) -> None:
        """Restores a state that ``compression_state_dict()`` returned on this rank. The next steps
        equal the steps after the save. Without saved means the next step applies none."""
        rest, means = compression_state.without_means(state_dict)
        self._deferred.check(means)
        compression_state.warn_of_lost_means(state_dict, len(means))
        self._restart()
        compression_state.load(self._exchange, rest)
        self._deferred.restore(means)

    def load_compression_shards(self, states: Iterable[dict[str, torch.Tensor]]) -> str:
        """As without a delay. The means are equal on all ranks, so any number of ranks can take
        them; the returned lines say so."""
        parted = [compression_state.without_means(state) for state in states]
        of_all = [means for _, means in parted]
        for means in of_all:
            self._deferred.check(means)
        if any(means.keys() != of_all[0].keys() for means in of_all):
            raise ValueError(
                "only some of the saved states have means: give the states of all ranks of one save"
            )
        self._restart()
        said = compression_state.load_shards(self._exchange, [rest for rest, _ in parted])
        self._deferred.restore(of_all[0] if of_all else {})
        return said + "means of the last step: as saved\n"

    def _restart(self) -> None:
        # A step under way belongs to the state that is replaced.
        if self._exchange.failed:
            self._exchange.abandon()
        else:
            self._exchange.restart()
        self._deferred.forget()


def _refusal(what: str) -> str:
    return (
        f"with {_APPLY} {what} the step before: train in bfloat16 or float32, which need no loss "
        "scaling, or remove the key"
    )


def check_late(exchange: GradientExchange) -> None:
    """ValueError for an argument of DistributedOptimizer that has no effect one step late. The new
    exchange then ends."""
    if exchange.settings.sparse_as_dense:
        exchange.detach()
        world.current().destroy_set(exchange.set)
        raise ValueError(
            f"sparse_as_dense=True has no effect with {_APPLY}, which exchanges dense gradients "
            "only: make the layers dense, or remove the key"
        )

