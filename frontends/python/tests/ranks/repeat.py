"""The same bits again over real MPI: two trainings under `deterministic = true`, one scheduler
against another, DeAR after a flush against a step that waits for all; to rounding where MPI's own
algorithms add up in any order.

    repeat.py        trains everything twice
    repeat.py FILE   once: two launches are compared by the fingerprints that the first leaves in FILE
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
from support import close, loss_of, make_batch, mine, run_checks, same_bits_on_all_ranks

import penstock.torch as hvd

STEPS = 4
OTHER_LAUNCH = Path(sys.argv[1]) if len(sys.argv) > 1 else None

METHODS = {
    "none": "",
    "topk": 'compressor = "topk"\nmemory = "residual"\n[compressor.topk]\ndensity = 0.05\n',
    "powersgd": 'compressor = "powersgd"\nmemory = "residual"\n'
    "[compressor.powersgd]\nrank = 2\nminimum_compression_rate = 0.0\n",
}
SCHEDULERS = {
    "wfbp": 'scheduler = "wfbp"\n',
    "fusion": 'scheduler = "fusion"\n',
    "fgbuff": 'scheduler = "fgbuff"\n',
    "mgwfbp": 'scheduler = "mgwfbp"\n',
    "omgs": 'scheduler = "omgs"\n',
    "syncea": 'scheduler = "syncea"\n',
    "dear": 'scheduler = "dear"\nroute = "split"\n',
}
OPTIONS = {
    "fusion": "[scheduler.fusion]\nthreshold_bytes = 4096\n",
    "fgbuff": '[scheduler.fgbuff]\nmode = "published"\n',
    "mgwfbp": '[scheduler.mgwfbp]\nmode = "published"\n',
    "omgs": '[scheduler.omgs]\nmode = "published"\n',
    "dear": "[scheduler.dear]\nthreshold_bytes = 4096\n",
}
# DeAR splits an all-reduce into two halves, so only sums can travel under it.
PAIRS = [(m, s) for m in METHODS for s in SCHEDULERS if s != "dear" or m == "none"]


def text_of(method: str, scheduler: str) -> str:
    keys, _, tables = METHODS[method].partition("[")
    return f"[scheme]\n{SCHEDULERS[scheduler]}{keys}{OPTIONS.get(scheduler, '')}" + (
        f"[{tables}" if tables else ""
    )


def make_net() -> torch.nn.Sequential:
    """Sizes that cannot be divided by two, three or four ranks. One size is far above a small
    message."""
    torch.manual_seed(5)
    return torch.nn.Sequential(
        torch.nn.Linear(5, 67),
        torch.nn.Tanh(),
        torch.nn.Linear(67, 101),
        torch.nn.Tanh(),
        torch.nn.Linear(101, 3),
    )


def trained(scheme: str) -> torch.nn.Sequential:
    model = make_net()
    optimizer: Any = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        named_parameters=model.named_parameters(),
        scheme=scheme,
    )
    for step in range(STEPS):
        optimizer.zero_grad()
        x, y = make_batch(step, 4 * hvd.size())
        loss_of(model, mine(x), mine(y)).backward()
        optimizer.step()
    optimizer.flush()
    optimizer.close()
    return model


def fingerprint(model: torch.nn.Module) -> str:
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()


def check_a_deterministic_run_gives_the_same_bits_again() -> None:
    prints = {}
    for method, scheduler in PAIRS:
        name = f"{method} under {scheduler}"
        model = trained(text_of(method, scheduler))
        same_bits_on_all_ranks(model)
        prints[name] = fingerprint(model)
        if OTHER_LAUNCH is None:
            assert fingerprint(trained(text_of(method, scheduler))) == prints[name], name
        # Sums are in rank order, so neither the buckets nor deferred updates change a bit.
        assert prints[name] == prints[f"{method} under wfbp"], f"{name} is not {method} under wfbp"
    assert len(set(prints.values())) == len(METHODS), "methods that should differ give one result"
    assert prints["none under wfbp"] != fingerprint(make_net()), "nothing was trained"
    if OTHER_LAUNCH is not None and hvd.rank() == 0:
        if OTHER_LAUNCH.exists():
            assert json.loads(OTHER_LAUNCH.read_text()) == prints, "another launch differs"
        else:
            OTHER_LAUNCH.write_text(json.dumps(prints))


def check_dear_agrees_to_rounding_where_sums_have_any_order() -> None:
    hvd.shutdown()
    hvd.init(config_text='[collective.mpi]\nalgorithm = "native"\n')
    close(trained(text_of("none", "dear")), trained(text_of("none", "fusion")))


if __name__ == "__main__":
    hvd.init(config_text="[runtime]\ndeterministic = true\n")
    run_checks(globals())
