"""The contestants of tools/bench step: torch's own ways by name, and every scheme of conf/."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
CONF = REPOSITORY / "conf"
HOROVOD = REPOSITORY / "build/horovod"  # where build_horovod puts it
REFERENCE = "ddp"
TORCH = {
    "ddp": "DistributedDataParallel over gloo, float32",
    "ddp-fp16": "the same with torch's fp16_compress_hook",
    "ddp-powersgd": "the same with torch's powerSGD_hook: rank 4, error feedback, warm start",
    "grace-style": "a stand-in for GRACE: torch.topk of 1 % with a residual and two all-gathers per gradient, over gloo",
}
HOROVOD_ITSELF = "horovod-0.28.1"  # not ours, and not there unless somebody has built it
DENSE = "dense"
# Only the reference runs beside these. Horovod's thread talks to the other ranks every millisecond, also in the turns of other
# contestants. Our contestants share their connections, and the reference has its own. Beside our other contestants an
# uncompressed one is 1 to 2 % slower at 1 Gb/s than alone, but people train with one alone.
ALONE = (HOROVOD_ITSELF, DENSE)
DENSE_SCHEME = '[scheme]\ncompressor = "none"\nmemory = "none"\nscheduler = "fusion"\n'
# The contestants of a run without --schemes. Pairs that goals compare stand near each other, so that they run in one round.
DEFAULT = (
    "ddp", "ddp-fp16", "ddp-powersgd", "power-sgd", "acp-sgd", "topk-residual", "grace-style", "dense", "dgc", "ef-sign", "ok-topk",
)  # fmt: skip


def names() -> list[str]:
    """All possible contestants."""
    return [*TORCH, HOROVOD_ITSELF, DENSE, *sorted(path.stem for path in CONF.glob("*.toml"))]


def is_ours(name: str) -> bool:
    return name not in TORCH and name != HOROVOD_ITSELF


def without_switches(scheme: str) -> str:
    """The scheme without its switches, so that its first tables hold from the start. For example DGC sends 0.1 % and not the
    25 % of its warm-up."""
    kept, leaving_out = [], False
    for line in scheme.splitlines():
        if line.startswith("["):
            leaving_out = line.startswith("[[switch]]")
        if not leaving_out:
            kept.append(line)
    return "\n".join(kept) + "\n"


def scheme_of(name: str) -> str:
    """TOML of a contestant of ours. `transport = "auto"` becomes the transport of the run, `ucx`."""
    if name == DENSE:
        return DENSE_SCHEME
    text = without_switches((CONF / f"{name}.toml").read_text())
    return re.sub(r'^(transport\s*=\s*)"auto"', r'\1"ucx"', text, flags=re.MULTILINE)
