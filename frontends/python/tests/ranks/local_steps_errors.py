"""LocalSteps: broken values and wrong use."""

from __future__ import annotations

import warnings
from typing import Any

import ddp_support
import torch
from ddp_support import join_torch
from local_steps_support import (
    AVERAGE,
    TOPK,
    anchors_are_equal,
    batch_of,
    copied,
    drift,
    end,
    inner_of,
    make_model,
    train,
    wrap,
)
from support import expect, loss_of

import penstock.torch as hvd
from penstock.torch.apart.fragment import Fragment


def check_a_drift_that_is_not_finite_leaves_no_trace() -> None:
    ends = []
    for breaks in (True, False):
        model = make_model()
        optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.0), every=1, scheme=TOPK)
        optimizer.anchors()
        drift(model, 1)
        optimizer.step()
        before = copied(optimizer.anchors())
        if breaks:
            drift(model, 2)
            if hvd.rank() == hvd.size() - 1:
                for parameter in model.parameters():
                    parameter.detach().view(-1)[0] = float("inf")
            optimizer.step()
            for key, anchor in optimizer.anchors().items():
                assert torch.equal(anchor, before[key]), f"the anchor of {key} moved"
                assert torch.equal(model.get_parameter(key), anchor), f"{key} is not its anchor"
        drift(model, 3)
        optimizer.step()
        ends.append(copied(optimizer.anchors()))
        end(optimizer)
    for key in ends[0]:
        assert torch.equal(ends[0][key], ends[1][key]), f"{key}: residual or momentum changed"


def check_an_exchange_without_memory_has_not_begun() -> None:
    model = make_model()
    optimizer = wrap(model, every=2)
    room = Fragment._room

    def no_room(fragment: Fragment, number: int) -> torch.Tensor:
        if number == 1:
            raise MemoryError
        return room(fragment, number)

    Fragment._room = no_room  # type: ignore[method-assign]
    try:
        with expect(MemoryError):
            train(model, optimizer, 0, 2)
    finally:
        Fragment._room = room  # type: ignore[method-assign]
    train(model, optimizer, 2, 4)
    for name, anchor in optimizer.anchors().items():
        assert torch.equal(model.state_dict()[name], anchor), name
    end(optimizer)


def check_wrong_use_is_refused_with_a_sentence() -> None:
    model = make_model()

    def refused(*words: str, **arguments: Any) -> None:
        with expect(ValueError, *words):
            wrap(model, **arguments)

    refused("every is 0", "from 1 on", every=0)
    refused("every is 2.5", every=2.5)
    refused("delay is 4", "every / fragments = 12 / 3", every=12, fragments=3, delay=4)
    refused("delay is -1", every=2, delay=-1)
    refused("fragments is 5", "form 4 layers (0, 2, 4, 6)", every=12, fragments=5)
    refused("fragments is 3 and every is 2", every=2, fragments=3)
    refused("mix is 1.0", every=2, mix=1.0)
    refused("anchors is 'gpu'", every=2, anchors="gpu")
    refused("outer is 'nesterov'", every=2, outer="nesterov")
    with expect(ValueError, "outer lr is 0"):
        hvd.OuterStep(lr=0)
    with expect(ValueError, "outer momentum is 1.0"):
        hvd.OuterStep(momentum=1.0)
    with expect(ValueError, "names of the parameters are missing"):
        hvd.LocalSteps(inner_of(model), every=4, fragments=2)
    optimizer = wrap(model, every=3)
    with expect(ValueError, "wrapped by LocalSteps already"):
        hvd.LocalSteps(optimizer, every=3)
    refused("LocalSteps exchanges these parameters already", "another LocalSteps", every=3)
    with expect(ValueError, "a DistributedOptimizer would exchange them too"):
        hvd.DistributedOptimizer(inner_of(model), named_parameters=model.named_parameters())
    with expect(ValueError, "takes no further parameter groups"):
        optimizer.add_param_group({"params": []})
    with expect(ValueError, "momentum can neither begin nor end"):
        optimizer.outer = None
    end(optimizer)
    with expect(ValueError, "wrap the optimizer again"):
        optimizer.step()
    each = hvd.DistributedOptimizer(inner_of(model), named_parameters=model.named_parameters())
    refused("averaged in every step already, by a DistributedOptimizer", every=3)
    each.close()


def check_a_step_within_compiled_code_is_not_traced() -> None:
    traced = []

    def backend(graph: Any, _: Any) -> Any:
        traced.append(graph)
        return graph.forward

    model = make_model()
    optimizer = wrap(model, every=2)

    @torch.compile(backend=backend)
    def step() -> None:
        optimizer.step()

    for number in range(5):
        drift(model, number)
        step()
    assert not traced, f"{len(traced)} parts of the step were compiled"
    end(optimizer)


def check_an_optimizer_with_second_weights_is_warned_of() -> None:
    class Free(torch.optim.SGD):
        def train(self) -> None:
            """Swaps the parameters back."""

        def eval(self) -> None:
            """Swaps the parameters for averaged weights."""

    for kind, n_warnings in ((Free, 1), (torch.optim.SGD, 0)):
        model = make_model()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            optimizer = wrap(model, kind(model.parameters(), lr=0.1), every=2)
        found = [one for one in said if "keeps second weights in its state" in str(one.message)]
        assert len(found) == n_warnings, said
        end(optimizer)


def check_the_hook_of_ddp_and_local_steps_refuse_each_other() -> None:
    join_torch()
    model = make_model()
    optimizer = wrap(model, every=3)
    ddp, _ = ddp_support.wrap(model)
    with expect(ValueError, "LocalSteps exchanges these parameters already", "ddp_hook"):
        loss_of(ddp, *batch_of(hvd.rank(), 0)).backward()
    end(optimizer)
    hooked = make_model()
    ddp, state = ddp_support.wrap(hooked)
    loss_of(ddp, *batch_of(hvd.rank(), 0)).backward()
    with expect(ValueError, "averaged in every step already, by ddp_hook"):
        wrap(hooked, every=3)
    assert state.counters()["payload_bytes"] > 0


def check_two_momenta_are_refused() -> None:
    model = make_model()
    scheme = hvd.Scheme(compressor="dgc", memory="dgc")
    with expect(hvd.HorovodInternalError, "momentum"):
        wrap(model, every=2, scheme=scheme)
    optimizer = wrap(model, every=2, scheme=scheme, outer=AVERAGE)
    train(model, optimizer, 0, 4)
    anchors_are_equal(optimizer)
    end(optimizer)
