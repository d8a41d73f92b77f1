"""Steps of a case on one rank of a runtime, whatever its transport is."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]
for room in ("tools", "frontends/python"):
    sys.path.insert(0, str(REPOSITORY / room))

from cases import SHAPES, STEPS, Case, drawn  # noqa: E402
from penstock import _library as c  # noqa: E402
from penstock.common.gradient_set import GradientSpec  # noqa: E402
from penstock.common.operation import TensorView  # noqa: E402
from penstock.common.runtime import Runtime  # noqa: E402
from quickstart_job import toml_text  # noqa: E402


def results(runtime: Runtime, case: Case, transport: str) -> list[dict[str, np.ndarray]]:
    """The results of STEPS steps. Collective."""
    specs = [GradientSpec(name, shape, c.FLOAT32) for name, shape in SHAPES.items()]
    model = runtime.create_set("model", specs, c.SET_REPORTS_OUTCOME, toml_text.dump(case.table(transport)))
    found = []
    for step in range(STEPS):
        tensors = drawn(step, runtime.topology.rank)
        for index, name in reversed(list(enumerate(SHAPES))):
            tensor = tensors[name]
            model.ready(index, TensorView(tensor.shape, c.FLOAT32, tensor.ctypes.data, tensor))
        model.wait_all()
        model.step_end(True)
        found.append(tensors)
    runtime.destroy_set(model)
    return found
