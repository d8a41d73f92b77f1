"""Gradients on devices through the frontend's classes: handed in where they lie, on the stream that
wrote them, and waited for by streams. PENSTOCK_LIBRARY names the library of
simulated_devices.lay_out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from ddp_support import join_torch
from simulated_devices import SimulatedDevice, pretend
from support import equal, expect, needs_torch, run_checks

import penstock.torch as hvd
from penstock import _library as c
from penstock.torch.ddp import PenstockState, ddp_hook

SHAPES = ((12, 30), (30,), (7, 5, 3))
STEPS = 4
SEEDS = range(1, 7)
DENSE = '[scheme]\nscheduler = "wfbp"\n'
FUSED = '[scheme]\nscheduler = "fusion"\n'
TOPK = (
    '[scheme]\ncompressor = "topk"\nmemory = "residual"\nscheduler = "wfbp"\n'
    "[compressor.topk]\ndensity = 0.1\n"
)
POWER = '[scheme]\ncompressor = "powersgd"\nmemory = "residual"\nscheduler = "wfbp"\n'
DEAR = '[scheme]\nscheduler = "dear"\n'

device = SimulatedDevice()


class Left:
    """The work of the device that was left at the end of each step: waits of the stream for each
    gradient, and results that have not arrived. Other threads ask for the device's state, which
    runs its work. So none may be left if the operating system stops this thread for a while at the
    end of a step; not in every step of a scheme, however."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def count(self) -> None:
        self.counts.append(device.queued())

    def check(self) -> None:
        assert max(self.counts) > len(SHAPES), f"every step waited for the device: {self.counts}"


class NoUpdate(torch.optim.Optimizer):
    """Does not change parameters, because no kernel of torch can change them here."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure: Any = None) -> None:
        assert closure is None


class Backward(torch.autograd.Function):
    """A loss of 0, whose backward gives the gradients of a step: at `addresses`, or in host memory.
    torch's accumulation takes a tensor without a copy if no other variable holds it."""

    @staticmethod
    def forward(ctx: Any, addresses: Sequence[int], step: int, *parameters: Any) -> torch.Tensor:
        ctx.addresses, ctx.step = addresses, step
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> Any:
        values = values_of(ctx.step)
        for address, one in zip(ctx.addresses, values):
            device.write(address, one)
        if ctx.addresses:
            values = [device.tensor(s, at) for s, at in zip(SHAPES, ctx.addresses)]
        return (None, None, *values)


def values_of(step: int) -> list[torch.Tensor]:
    """This rank's gradients of a step."""
    generator = torch.Generator().manual_seed(100 * step + hvd.rank())
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def wrap(parameters: list[torch.nn.Parameter], scheme: str) -> Any:
    named = [(f"parameter {number}", p) for number, p in enumerate(parameters)]
    # The parameters lie on the device, where the comparison of parameters cannot read them.
    inner = NoUpdate(parameters)
    return hvd.DistributedOptimizer(inner, named, scheme=scheme, check_parameters=False)


def results_on_the_cpu(scheme: str) -> Iterator[list[torch.Tensor]]:
    """The results of the steps in host memory."""
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
    optimizer = wrap(parameters, scheme)
    for step in range(STEPS):
        optimizer.zero_grad()
        Backward.apply((), step, *parameters).backward()
        optimizer.synchronize()
        yield [p.grad.clone() for p in parameters]
        with optimizer.skip_synchronize():
            optimizer.step()
    optimizer.close()


def check_steps_on_a_device_have_the_bits_of_the_cpu_and_nobody_waits_for_it() -> None:
    for scheme in (DENSE, FUSED, TOPK, POWER):
        expected, left = list(results_on_the_cpu(scheme)), Left()
        for seed in SEEDS:
            device.begin(seed)
            training, other = device.stream(), device.stream()
            parameters = [torch.nn.Parameter(device.tensor(shape)) for shape in SHAPES]
            addresses = [device.memory(shape) for shape in SHAPES]
            optimizer = wrap(parameters, scheme)
            for step in range(STEPS):
                before = device.waits()
                with device.on(training):
                    optimizer.zero_grad()
                    Backward.apply(addresses, step, *parameters).backward()
                # A stream that uses gradients of another stream must wait for backward.
                device.wait(other, training)
                with device.on(other):
                    optimizer.step()
                    assert device.waits() == before, "a thread waited for the device"
                    left.count()
                    assert [p.grad.data_ptr() for p in parameters] == addresses
                    for address, shape, one in zip(addresses, SHAPES, expected[step]):
                        equal(device.read(address, shape), one)
                # Before the memory is freed: its next user must come after the result.
                assert device.used[-3:] == [(address, other) for address in addresses]
            counters = optimizer.counters()
            assert counters["steps"] == STEPS
            optimizer.close()
        left.check()


class Holder(torch.nn.Module):
    """A module with the parameters. Its forward first applies their outstanding updates."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        super().__init__()
        self.held = torch.nn.ParameterList(parameters)
        for number, parameter in enumerate(parameters):
            self.register_parameter(f"own{number}", parameter)

    def forward(self, addresses: Sequence[int], step: int) -> torch.Tensor:
        return Backward.apply(addresses, step, *self.held)


def check_a_deferred_result_is_waited_for_by_the_stream_of_the_next_forward() -> None:
    expected, left = list(results_on_the_cpu(DEAR)), Left()
    for seed in SEEDS:
        device.begin(seed)
        training, forward = device.stream(), device.stream()
        parameters = [torch.nn.Parameter(device.tensor(shape)) for shape in SHAPES]
        holder = Holder(parameters)
        addresses = [device.memory(shape) for shape in SHAPES]
        optimizer = wrap(parameters, DEAR)
        for step in range(STEPS + 1):
            before = device.waits()
            with device.on(forward):
                loss = holder(addresses, step)
                assert device.waits() == before, "a thread waited for the device"
                if step > 0:
                    left.count()
                    for address, shape, one in zip(addresses, SHAPES, expected[step - 1]):
                        equal(device.read(address, shape), one)
            if step < STEPS:
                with device.on(training):
                    loss.backward()
                    optimizer.step()
                device.wait(forward, training)
        optimizer.close()
    left.check()


def check_what_a_loss_scaler_found_is_told_when_the_next_step_begins() -> None:
    device.begin(1)
    training = device.stream()
    parameters = [torch.nn.Parameter(device.tensor(shape)) for shape in SHAPES]
    addresses = [device.memory(shape) for shape in SHAPES]
    optimizer = wrap(parameters, TOPK)
    moments_seen: list[int] = []
    gradients = optimizer._exchange.set
    tell = gradients.optimizer_step
    gradients.optimizer_step = lambda gradients, moment, gone=None: (
        moments_seen.append(moment),
        tell(gradients, moment, gone),
    )
    left_out = (False, True, False)
    ends = [c.OPTIMIZER_LEAVES_OUT if found else c.OPTIMIZER_ENDS for found in left_out]
    moments = [moment for end in ends for moment in (c.OPTIMIZER_BEGINS, end)]
    with device.on(training):
        for step, found in enumerate(left_out):
            optimizer.zero_grad()
            Backward.apply(addresses, step, *parameters).backward()
            optimizer.found_inf = torch.tensor(float(found))  # as a scaler gives it, on the device
            optimizer.step()
            assert moments_seen == moments[: 2 * step]
        counted = optimizer.counters()
        assert moments_seen == moments
        assert (counted["steps"], counted["forgotten_steps"]) == (2, 1)
        # No stream waits for the runtime any more. The simulator would report such a wait as misuse
        # at the end of the runtime.
        device.read(addresses[0], SHAPES[0])
    optimizer.close()


class Bucket:
    """The gradients in one buffer, as DDP gives them to its hook."""

    def __init__(self, number: int, last: bool, buffer: torch.Tensor, parameters: Any) -> None:
        self.index = lambda: number
        self.is_last = lambda: last
        self.buffer = lambda: buffer
        self.parameters = lambda: parameters
        sizes = [p.numel() for p in parameters]
        self.gradients = lambda: [
            part.view(p.shape) for part, p in zip(buffer.split(sizes), parameters)
        ]


def give_to_hook(state: PenstockState, buffers: Any, parameters: Any) -> list[Any]:
    """A backward: the buckets of the last parameter, then of the others."""
    return [
        ddp_hook(state, Bucket(0, False, buffers[0], parameters[2:])),  # type: ignore[arg-type]
        ddp_hook(state, Bucket(1, True, buffers[1], parameters[:2])),  # type: ignore[arg-type]
    ]


def check_the_hook_of_ddp_gives_the_bits_of_the_cpu_and_nobody_waits_for_the_device() -> None:
    join_torch()
    for scheme in (DENSE, TOPK):
        on_cpu = [torch.nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
        expected, left = [], Left()
        state = PenstockState(scheme)
        for step in range(STEPS):
            buffers = flat_buckets(step)
            futures = give_to_hook(state, buffers, on_cpu)
            expected.append([future.wait().clone() for future in futures])
            state.step_end()
        state.close()
        for seed in SEEDS:
            device.begin(seed)
            state = PenstockState(scheme)
            training = device.stream()
            parameters = [torch.nn.Parameter(device.tensor(shape)) for shape in SHAPES]
            buffers = [device.tensor(flat.shape) for flat in flat_buckets(0)]
            addresses = [buffer.data_ptr() for buffer in buffers]
            for step in range(STEPS):
                with device.on(training):
                    for address, values in zip(addresses, flat_buckets(step)):
                        device.write(address, values)
                    before = device.waits()
                    for number, future in enumerate(give_to_hook(state, buffers, parameters)):
                        assert future.wait().data_ptr() == addresses[number]
                    state.step_end()
                    assert device.waits() == before, "a thread waited for the device"
                    left.count()
                    for address, values in zip(addresses, expected[step]):
                        equal(device.read(address, values.shape), values)
            state.close()
        left.check()


def flat_buckets(step: int) -> list[torch.Tensor]:
    values = values_of(step)
    return [values[2].reshape(-1), torch.cat([one.reshape(-1) for one in values[:2]])]


@needs_torch((2, 6), "FSDPModule")
def check_a_part_of_fsdp2_has_the_bits_of_the_cpu_and_nobody_waits_for_the_device() -> None:
    # This check must be the last, because its sets end only with the runtime.
    from penstock.torch.fsdp import PenstockReduceScatter

    device.begin(2)
    on_cpu, on_device = PenstockReduceScatter(TOPK), PenstockReduceScatter(TOPK)

    def part_of(reducer: PenstockReduceScatter, flat: torch.Tensor) -> torch.Tensor:
        reducer._begin(flat, flat, tuple(range(hvd.size())), True, None)
        part = reducer._part()
        reducer._set.step_end(c.STEP_APPLIED)
        return part

    address, stream = device.memory((390,)), device.stream()
    for step in range(STEPS):
        values = flat_buckets(step)[1]
        with device.on(stream):
            device.write(address, values)
            before = device.waits()
            part = part_of(on_device, device.tensor((390,), address))
            assert device.waits() == before, "a thread waited for the device"
            found = device.read(part.data_ptr(), part.shape)
        equal(found, part_of(on_cpu, values))
    assert device.used[-1] == (address, stream)


def a_lost_device_ends_backward_with_its_words() -> None:
    """For a run of one rank, because the run fails."""
    device.begin(1)
    join_torch()
    state = PenstockState(TOPK)
    parameters = [torch.nn.Parameter(device.tensor(shape)) for shape in SHAPES]
    buffers = [device.tensor(flat.shape) for flat in flat_buckets(0)]
    for future in give_to_hook(state, buffers, parameters):
        future.wait()
    state.step_end()
    device.lose()
    with expect(hvd.HorovodInternalError, "cuda:0", "error 719"):
        give_to_hook(state, buffers, parameters)


if __name__ == "__main__":
    alone = sys.argv[1:] == ["lost"]
    hvd.init(config_text='[scheme]\ncollective = "loopback"\n' if alone else None)
    pretend(device)
    if not alone:
        run_checks(globals())
        sys.exit()
    a_lost_device_ends_backward_with_its_words()
    print("all checks passed", flush=True)
    os._exit(0)  # memory to which a lost device may still write is not freed
