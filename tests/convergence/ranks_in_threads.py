"""Ranks of the runtime as threads of this process, on chosen hosts, for comparison with the simulations.

Takes the place of a scheme in `oracle.training.simulate`, so that model, data and optimizer are equal.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from oracle.method import Gradients, Item
from quickstart_job import toml_text

from penstock import _library as c
from penstock.common.operation import TensorView
from penstock.common.runtime import GradientSpec, Runtime

Result = TypeVar("Result")

_hubs = itertools.count()


class RanksInThreads:
    """One runtime and one set of gradients per rank. hosts[r] is the host of rank r."""

    def __init__(self, table: toml_text.Table, items: Sequence[Item], hosts: Sequence[int]) -> None:
        self.items = list(items)
        self.ranks = range(len(hosts))
        self.pool = ThreadPoolExecutor(len(hosts))
        hub = f"ranks in threads {next(_hubs)}"
        self.runtimes = self._on_all(lambda rank: Runtime("", _text(table, hub, rank, hosts), "tests"))
        specs = [GradientSpec(item.name, item.shape, c.FLOAT32) for item in self.items]
        flags = c.SET_DEFERRED_UPDATE | c.SET_REPORTS_OUTCOME
        self.sets = self._on_all(lambda rank: self.runtimes[rank].create_set("model", specs, flags))

    def __enter__(self) -> RanksInThreads:
        return self

    def __exit__(self, *_: object) -> None:
        self._on_all(lambda rank: self.runtimes[rank].close())
        self.pool.shutdown()

    def _on_all(self, act: Callable[[int], Result]) -> list[Result]:
        return [future.result() for future in [self.pool.submit(act, rank) for rank in self.ranks]]

    def step(self, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        """The gradients for every rank's optimizer. AssertionError if ranks differ in a bit."""
        results = [{name: grad.detach().clone().contiguous() for name, grad in own.items()} for own in grads]
        self._on_all(lambda rank: self._step_of(rank, results[rank]))
        for rank in self.ranks:
            for name, result in results[rank].items():
                assert torch.equal(result, results[0][name]), f"ranks 0 and {rank} got other results for {name}"
        return results[0]

    def _step_of(self, rank: int, tensors: Gradients) -> None:
        own = self.sets[rank]
        for item in reversed(self.items):
            tensor = tensors[item.name]
            own.ready(item.index, TensorView(item.shape, c.FLOAT32, tensor.data_ptr(), tensor))
        if own.defers():
            own.backward_end()
        own.wait_all()
        own.step_end(True)


def _text(table: toml_text.Table, hub: str, rank: int, hosts: Sequence[int]) -> str:
    loopback: dict[str, Any] = {"hub": hub, "rank": rank, "size": len(hosts), "hosts": ",".join(map(str, hosts))}
    changes = {"scheme.collective": "loopback", "collective": {"loopback": loopback}}
    runtime = {"deadline_s": 60, "log_level": "error"}
    return toml_text.dump(toml_text.replaced(table, changes) | {"runtime": runtime})
