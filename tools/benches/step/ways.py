"""How a contestant of tools/bench step brings the gradients of one step through: torch's DistributedDataParallel with its
hooks, a stand-in for GRACE, and a set of the runtime. Each way leaves its results where `results` finds them."""

from __future__ import annotations

import time
import tomllib
from typing import Any

import torch
import torch.distributed as dist
from penstock import _library as c
from penstock.common.gradient_set import GradientSpec
from penstock.common.operation import TensorView
from penstock.torch import world
from penstock.torch.tensors import DTYPES
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from benches.step.contestants import scheme_of
from benches.step.models import Gradient

RANK = 4  # of torch's PowerSGD
DENSITY = 0.01  # of the stand-in for GRACE
STEPS_TO_CHOOSE = 90  # until a scheduler that chooses has measured and tried with the shipped options


class Backward:
    """Gradients that lie ready in `work`, flat and in order of registration, and the moments at which backward has them."""

    def __init__(self, gradients: list[Gradient], work: torch.Tensor, length_s: float) -> None:
        self.gradients, self.work, self.length_s = gradients, work, length_s
        self.order = list(reversed(range(len(gradients))))
        self.started = 0.0
        firsts = [0]
        for gradient in gradients:
            firsts.append(firsts[-1] + gradient.elements)
        self.firsts = firsts

    def view(self, number: int) -> torch.Tensor:
        return self.work[self.firsts[number] : self.firsts[number + 1]].view(self.gradients[number].shape)

    def start(self) -> None:
        self.started = time.perf_counter()

    def reach(self, number: int) -> None:
        """Sleeps until backward has this gradient."""
        early = self.started + self.gradients[number].share * self.length_s - time.perf_counter()
        if self.length_s and early > 0:
            time.sleep(early)


class Way:
    """A way to exchange the gradients of a step. `warm_up` is the number of steps before the first step that counts."""

    warm_up = 2

    def __init__(self, backward: Backward) -> None:
        self.backward = backward

    def before(self) -> None:
        """Prepares a step; not timed."""

    def step(self) -> None:
        raise NotImplementedError

    def after(self) -> None:
        """Ends the step; not timed."""

    def end(self) -> None:
        """After the last step."""

    def results(self) -> list[torch.Tensor]:
        return [self.backward.view(number) for number in range(len(self.backward.gradients))]

    def explanation(self) -> list[str]:
        """The reasons for its plan, if its scheduler chooses."""
        return []


class Reached(torch.autograd.Function):
    """A layer without arithmetic: its backward sleeps for the given time, and gives its parameter a gradient."""

    @staticmethod
    def forward(context: Any, value: torch.Tensor, _: torch.Tensor, backward: Backward, number: int) -> torch.Tensor:
        context.backward, context.number = backward, number
        return value.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        context.backward.reach(context.number)
        return gradient, context.backward.view(context.number), None, None


class Layers(nn.Module):
    """Parameters of these shapes, one behind the other."""

    def __init__(self, backward: Backward) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(gradient.shape)) for gradient in backward.gradients)
        self.backward_pass = backward

    def forward(self) -> torch.Tensor:
        value = torch.zeros((), requires_grad=True)
        for number, weight in enumerate(self.weights):
            value = Reached.apply(value, weight, self.backward_pass, number)
        return value


class Ddp(Way):
    """DistributedDataParallel, with a hook of torch or without a hook."""

    def __init__(self, name: str, backward: Backward) -> None:
        super().__init__(backward)
        # torch's PowerSGD is dense in its first two steps. Over gloo its second sum of a bucket starts from a thread of its
        # own: with several buckets ranks would disagree on the order.
        power = name == "ddp-powersgd"
        self.warm_up = 3 if power else 2
        self.model = DistributedDataParallel(Layers(backward), init_sync=False, **({"bucket_cap_mb": 4096} if power else {}))
        if power:
            self.model.register_comm_hook(PowerSGDState(None, matrix_approximation_rank=RANK, start_powerSGD_iter=2, warm_start=True), powerSGD_hook)
        elif name == "ddp-fp16":
            self.model.register_comm_hook(None, fp16_compress_hook)
        self.loss = torch.zeros(())

    def before(self) -> None:
        self.model.zero_grad(set_to_none=True)
        self.loss = self.model()

    def step(self) -> None:
        self.backward.start()
        self.loss.backward()

    def results(self) -> list[torch.Tensor]:
        return [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]


class GraceStyle(Way):
    """Per gradient: adds the kept values, selects by torch.topk, and gathers values and 64-bit indices, each by itself."""

    warm_up = 1

    def __init__(self, backward: Backward) -> None:
        super().__init__(backward)
        self.kept = [torch.zeros(gradient.elements) for gradient in backward.gradients]

    def step(self) -> None:
        self.backward.start()
        size, under_way = dist.get_world_size(), []
        for number in self.backward.order:
            self.backward.reach(number)
            kept = self.kept[number].add_(self.backward.view(number).view(-1))
            _, indices = torch.topk(kept.abs(), max(1, int(DENSITY * len(kept))), sorted=False)
            values = kept[indices]
            kept[indices] = 0
            gathered = [[torch.empty_like(one) for _ in range(size)] for one in (values, indices)]
            works = [dist.all_gather(into, one, async_op=True) for into, one in zip(gathered, (values, indices))]
            under_way.append((number, gathered, works, (values, indices)))
        for number, (values, indices), works, _ in under_way:
            for work in works:
                work.wait()
            result = self.backward.view(number).view(-1).zero_()
            for one, where in zip(values, indices):
                result.index_add_(0, where, one)
            result /= size


class Ours(Way):
    """A set of the runtime with one scheme; results lie in place of the gradients."""

    def __init__(self, name: str, backward: Backward) -> None:
        super().__init__(backward)
        kind = DTYPES[torch.float32]
        specs = [GradientSpec(gradient.name, gradient.shape, kind) for gradient in backward.gradients]
        self.views = [TensorView(spec.shape, kind, backward.view(number).data_ptr(), backward.work) for number, spec in enumerate(specs)]
        scheme = scheme_of(name)
        self.chooses = "candidates" in tomllib.loads(scheme)["scheme"]
        if self.chooses:
            self.warm_up = STEPS_TO_CHOOSE
        self.set = world.current().create_set(f"step {name}", specs, c.SET_REPORTS_OUTCOME | c.SET_DEFERRED_UPDATE, scheme)
        self.waited_us = 0

    def step(self) -> None:
        self.backward.start()
        for number in self.backward.order:
            self.backward.reach(number)
            self.set.ready(number, self.views[number])
        if not self.set.defers():
            return self.set.wait_all()
        # There is no next forward. So wait for each deferred result in the order in which a forward would need it.
        self.set.backward_end()
        for number in range(len(self.views)):
            self.set.wait(number)

    def split(self) -> dict[str, float]:
        """Milliseconds of the last step's stages on this rank, summed over buckets, and of the program's waits."""
        buckets = self.set.report()["buckets"]
        stages = {f"{stage}_ms": sum(bucket[f"{stage}_us"] for bucket in buckets) * 1e-3 for stage in ("encode", "exchange", "decode")}
        waited = self.set.counters()["wait_us"]
        stages["wait_ms"] = (waited - self.waited_us) * 1e-3
        self.waited_us = waited
        return stages

    def after(self) -> None:
        self.set.step_end(True)

    def explanation(self) -> list[str]:
        return list(self.set.report()["explanation"]) if self.chooses else []
