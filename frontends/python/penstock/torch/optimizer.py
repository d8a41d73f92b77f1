"""DistributedOptimizer: wraps any torch optimizer and averages its gradients over ranks before the
update."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from penstock import _library as c
from penstock.common.outcomes import outcome_of
from penstock.common.process_sets import ProcessSet, global_process_set
from penstock.torch import state as compression_state
from penstock.torch import world
from penstock.torch.adopted import adopt
from penstock.torch.checks import check_arguments, check_groups, check_passes, name_parameters
from penstock.torch.collectives.reductions import Adasum, Average
from penstock.torch.compression import Compression
from penstock.torch.deferred import DeferredUpdates
from penstock.torch.exchange import GradientExchange
from penstock.torch.late import LateMeans, LateMethods, check_late
from penstock.torch.loss_scaling import asked_by_scaler, warn_of_untold_scale
from penstock.torch.scheme import Scheme
from penstock.torch.settings import Settings, scheme_text


class _DistributedOptimizer:
    """The methods that DistributedOptimizer adds to the user's optimizer class (see `adopt`).
    ``super()`` here is the user's optimizer."""

    _exchange: GradientExchange
    _deferred: DeferredUpdates
    _should_synchronize: bool
    _parameter_names: dict[torch.Tensor, str]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """torch's parameter groups. If a torch ``GradScaler`` reads them after backward, to unscale
        gradients or to find infinities, this property first waits for the averages.
        """
        exchange: GradientExchange | None = self.__dict__.get("_exchange")
        if (
            exchange is not None
            and self._should_synchronize
            and asked_by_scaler(sys._getframe(1))
            and exchange.touched
        ):
            warn_of_untold_scale(exchange.options, exchange.set, "optimizer")
            exchange.synchronize()
            exchange.by_scaler = True
        return self.__dict__["param_groups"]

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.__dict__["param_groups"] = groups

    # ---- Horovod's interface ----

    @property
    def backward_passes_per_step(self) -> int:
        """The number of backward passes whose gradients are added locally before they are averaged
        over ranks."""
        return self._exchange.passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes the number of backward passes in a step; counting starts again."""
        check_passes(passes)
        self._exchange.set_passes(passes)

    def synchronize(self) -> None:
        """Waits until every ``p.grad`` holds the average (or sum) over ranks, for example to clip
        it.

        Use ``with optimizer.skip_synchronize(): optimizer.step()`` afterwards. A parameter that
        backward did not reach on this rank takes part with zeros. Also raises errors that occurred
        during backward.
        """
        self._exchange.synchronize()

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """In this context ``step()`` does not synchronize."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Any = None) -> Any:
        """Synchronizes, except in ``skip_synchronize()``, and takes the optimizer's step.

        If the scheduler defers updates, the parameters change in the next forward or at
        ``flush()``.
        """
        exchange = self._exchange
        if not self._should_synchronize:
            if exchange.under_way:
                raise AssertionError(
                    "optimizer.step() was called in optimizer.skip_synchronize() with gradients "
                    "in flight. Call optimizer.synchronize() first."
                )
            return self._take_step(closure)
        if (
            exchange.phase == c.PHASE_SYNCHRONIZED
            and not exchange.touched
            and not exchange.by_scaler
        ):
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() context after "
                "optimizer.synchronize(). "
                "This can cause training slowdown. You may want to consider using "
                "optimizer.skip_synchronize() context "
                "if you use optimizer.synchronize() in your code.",
                stacklevel=2,
            )
        if closure is not None:

            def averaged_closure() -> Any:
                loss = closure()
                exchange.synchronize()
                return loss

            return self._take_step(averaged_closure)
        exchange.raise_error()
        if exchange.phase != c.PHASE_SYNCHRONIZED and exchange.set.defers():
            self._deferred.defer()
            return None
        exchange.synchronize()
        return self._take_step(None)

    def _take_step(self, closure: Any) -> Any:
        self._deferred.flush()
        loss = super().step() if closure is None else super().step(closure)  # type: ignore[misc]
        self._exchange.end_of_update()
        return loss

    def zero_grad(self, *arguments: Any, **keywords: Any) -> None:
        """Zeroes the gradients, as in torch. AssertionError between backward and ``step()`` or
        ``synchronize()``."""
        if self._exchange.touched:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before "
                "optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition."
            )
        super().zero_grad(*arguments, **keywords)  # type: ignore[misc]

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of the user's optimizer alone. Applies deferred updates first."""
        self._deferred.flush()
        return super().state_dict()  # type: ignore[misc]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state that ``state_dict()`` returned. If ``compression_state_dict()`` was added
        to it, also loads the state of compression.

        Gradients that were handed in but not waited for are dropped. Call it on every rank.
        """
        is_ours = compression_state.is_ours
        own = {key: value for key, value in state_dict.items() if not is_ours(key)}
        saved = {key: value for key, value in state_dict.items() if is_ours(key)}
        self._should_synchronize = True
        self._restart()
        super().load_state_dict(own)  # type: ignore[misc]
        if saved:
            self.load_compression_state_dict(saved)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Raises ValueError, because the ranks agree on the gradients when the optimizer is
        made."""
        del param_group
        raise ValueError(
            "a DistributedOptimizer takes no further parameter groups; add them to the optimizer "
            "before it is wrapped"
        )

    # ---- Beyond Horovod ----

    def flush(self) -> None:
        """Applies all deferred updates. Call it before code reads parameters in another manner than
        by a module's forward, ``state_dict()`` or ``broadcast_parameters()``. Costs nothing if no
        update is deferred."""
        self._deferred.flush()

    def skip_step(self) -> None:
        """Forgets the step. Call it instead of ``step()``, on every rank or on none. The state of
        compression becomes, to the bit, the state before the backward.

        A synchronized step whose gradients ``zero_grad()`` throws away is forgotten without this
        call.
        """
        exchange = self._exchange
        exchange.synchronize()
        exchange.end(c.STEP_FORGOTTEN)

    def step_end(self, outcome: str = "applied") -> None:
        """Ends a synchronized step as "applied" (its gradients were used) or as "forget" (the state
        of compression becomes, to the bit, the state before the backward). All ranks must call it
        with an equal outcome. Call it if gradients are used or thrown away in a manner that
        Penstock cannot observe; docs/ddp.md says which."""
        ending = outcome_of(outcome)
        self._exchange.synchronize()
        self._exchange.end(ending)

    def let_go(self) -> None:
        """Zeroes the values that memories keep of earlier steps (residuals, momenta, shifts). Call
        it on every rank or on none. It helps a loop that throws away every step because an earlier
        step has left bad values there. A step that was not taken yet is forgotten."""
        self._restart()
        self._exchange.set.let_go()

    def set_grad_scale(self, scale: float) -> None:
        """Sets the factor by which the loss of the next backward is scaled
        (``scaler.get_scale()``). Residuals then keep their true size when the factor changes. Call
        it before backward."""
        self._exchange.scale_next(float(scale))

    def compression_state_dict(self) -> dict[str, torch.Tensor]:
        """Returns the state of compression on this rank, under the key "penstock". Each rank saves
        and loads its own."""
        self._deferred.flush()
        return compression_state.save(self._exchange)

    def load_compression_state_dict(self, state_dict: dict[str, torch.Tensor]) -> None:
        """Restores a state that ``compression_state_dict()`` returned on this rank. The next steps
        equal the steps after the save."""
        self._restart()
        compression_state.load(self._exchange, state_dict)

    def load_compression_shards(self, states: Iterable[dict[str, torch.Tensor]]) -> str:
        """Restores the states that ``compression_state_dict()`` returned on all ranks of a run, in
        the order of its ranks; that run may have had another number of ranks. Collective, with
        equal states on every rank. Unsent gradient values keep their total effect on the
        parameters, unless a plugin drops or refuses them. Returns a line for each kind of state
        with its treatment."""
        self._restart()
        return compression_state.load_shards(self._exchange, list(states))

    def reset_compression_state(self) -> None:
        """Forgets the state of compression, such as residuals. Collective. A step under way ends
        first. After a failure in the middle of a step the run is over: start again."""
        try:
            self._exchange.set.reset()  # ends the step; results go to the gradients still held
        finally:
            self._deferred.forget()
            self._exchange.abandon()

    def report(self) -> dict[str, Any]:
        """Returns the plan and the counters of this optimizer's gradients."""
        self._exchange.conclude()
        return self._exchange.set.report()

    def counters(self) -> dict[str, int]:
        """Returns totals of this optimizer: steps, gradient_bytes, payload_bytes, moved_bytes and
        so on."""
        self._exchange.conclude()
        return self._exchange.set.counters()

    def close(self) -> None:
        """Applies deferred updates and removes all hooks. The object then acts like the user's
        optimizer. Every rank must call it."""
        if self._exchange.set.alive:
            self._restart()
        self._deferred.unwatch()
        self._exchange.detach()
        if self._exchange.set.alive:
            world.current().destroy_set(self._exchange.set)
        self._should_synchronize = False

    def _restart(self) -> None:
        if self._exchange.failed:
            self._deferred.forget()
            self._exchange.abandon()
        else:
            self._deferred.flush()
            self._exchange.restart()

    def _step_on(self, groups: list[dict[str, Any]]) -> None:
        """Takes the user's optimizer's step on these parameter groups only."""
        kept, self.param_groups = self.param_groups, groups
        try:
            super().step()  # type: ignore[misc]
        finally:
            self.param_groups = kept


class _LateOptimizer(LateMethods, _DistributedOptimizer):
    """The methods if the scheme says ``apply = "previous"``."""


def DistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    scheme: str | Scheme | None = None,
    check_parameters: bool = True,
) -> torch.optim.Optimizer:
    """Wraps a torch optimizer so that gradients are averaged over ranks while backward runs.
    Collective.

    optimizer: the returned optimizer takes over its options and its state and must be used instead
        of it from now on.
    named_parameters: usually ``model.named_parameters()``; names and order must be equal on every
        rank.
    compression: ``Compression.none``, ``Compression.fp16`` or a class with static compress and
        decompress. It applies in addition to the scheme of the configuration.
    backward_passes_per_step: number of backward passes that are added locally before gradients are
        averaged.
    op: Average or Sum; Adasum only in a world of one rank, where nothing is added.
    gradient_predivide_factor: with Average: gradients are divided by it before the sum over ranks,
        and the sum by the remaining factor.
    num_groups, groups: Horovod's arguments. They are only checked, because the scheduler decides
        which gradients travel together.
    sparse_as_dense: sparse gradients travel dense and become sparse again. Without it the ranks
        gather each other's indices and values, and the scheme does not apply.
    process_set: the ranks that average with each other. Every rank of the world may make the
        optimizer; on a rank outside the set it acts like the user's optimizer.
    scheme: a Scheme, TOML text or the path of a .toml file; it replaces the configuration's scheme
        for this optimizer.
    check_parameters: compare the parameters of the ranks before the first gradient is sent. If
        they differ (a forgotten ``broadcast_parameters``), rank 0 warns or every rank raises
        HorovodInternalError, depending on ``check_parameters`` in ``[runtime]``. False: parameters
        are not compared and may differ.

    Returns an instance of a class that derives from the optimizer's class and has its name. In a
    world of one rank, gradients also go through the runtime, so compression acts there too.
    Only parameters that require gradients now take part. If an older DistributedOptimizer has some
    of the parameters, this one takes them over. Raises ValueError like Horovod, and
    HorovodInternalError if ranks disagree.

    Between backward and ``step()`` gradients are being exchanged: do not read ``p.grad`` then;
    changing it is an AssertionError. To clip averaged gradients::

        loss.backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()

    torch's GradScaler needs no ``synchronize()``: ``scaler.unscale_(optimizer)`` and
    ``scaler.step(optimizer)`` wait for the averages, so clip after ``unscale_`` as usual.
    """
    if process_set is None:
        process_set = global_process_set
    check_arguments(
        compression, backward_passes_per_step, op, gradient_predivide_factor, process_set
    )
    check_groups(num_groups, groups)
    given = None if named_parameters is None else list(named_parameters)
    named = name_parameters(optimizer.param_groups, given)
    base: Any = type(optimizer)
    if issubclass(base, _DistributedOptimizer):
        # Already wrapped: take the user's own class.
        base = base.__mro__[base.__mro__.index(_DistributedOptimizer) + 1]
    wrapped = adopt(optimizer, _DistributedOptimizer, base)
    exchange = GradientExchange(
        lambda: wrapped.param_groups,
        named,
        Settings(
            compression=compression,
            passes=backward_passes_per_step,
            op=Average if op == Adasum else op,
            predivide=float(gradient_predivide_factor),
            sparse_as_dense=sparse_as_dense,
            process_set=process_set,
            scheme=scheme_text(scheme),
            check_parameters=check_parameters,
        ),
    )
    is_late = exchange.set.defers() == c.DEFERS_STEP
    if is_late:
        check_late(exchange)
        wrapped = adopt(optimizer, _LateOptimizer, base)
    wrapped._should_synchronize = True
    wrapped._parameter_names = {p: name for name, p in given or named}
    wrapped._exchange = exchange
    if is_late:
        wrapped._deferred = LateMeans(exchange, lambda: wrapped._step_on(wrapped.param_groups))
        return wrapped
    wrapped._deferred = DeferredUpdates(
        exchange, lambda: wrapped.param_groups, lambda some: wrapped._step_on(some)
    )
    if exchange.set.defers():
        wrapped._deferred.watch()
    return wrapped
