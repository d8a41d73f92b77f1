"""What the papers say of their systems, as their abstracts have it, beside what the race measured of ours. The two are not the
same question: other hosts, models and references, and training where the race has an exchange alone."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from hosts import rate_words

from benches.step.headlines import CELL
from benches.step.table import Record, groups, times_as_fast

BEGIN, END = "<!-- claims: tools/bench step --page writes what follows -->", "<!-- end of claims -->"
# By contestant: the system, the claim of its paper with its reference, and the machines.
CLAIMS: dict[str, tuple[str, str, str]] = {
    "acp-sgd": ("ACP-SGD", "4.06 x S-SGD and 1.43 x Power-SGD on average", "32 GPUs, 10 Gb/s"),
    "power-sgd": ("Power-SGD", "about half the time of SGD (ResNet-18, LSTM)", "16 GPUs, 10 Gb/s"),
    "dgc": ("DGC", "270 to 600 times fewer bytes; nothing of time", "up to 64 GPUs"),
    "ok-topk": ("Ok-Topk", "3.29 to 12.95 x other dense and sparse all-reduces (BERT)", "256 GPUs of a supercomputer"),
    "sidco": ("SIDCo", "up to 41.7 x no compression, 7.6 x top-k, 1.9 x DGC", "not in the abstract"),
    "dear": ("DeAR", "up to 1.83 x the best of others; 1.15 x on 100 Gb/s InfiniBand", "64 GPUs, 10 Gb/s"),
    "omgs": ("OMGS-SGD", "up to 1.31 x other sparse SGD", "16 GPUs, 1 Gb/s"),
    "espresso": ("Espresso", "up to 1.77 x other systems that compress", "64 GPUs, 25 and 100 Gb/s"),
    "mg-wfbp": ("MG-WFBP", "scales better than WFBP; no number in the abstract", "8 hosts, 10 Gb/s"),
    "gaussian-k": ("Gaussian-k", "faster than dense; no number in the abstract", "16 GPUs"),
    "adtopk": ("ADTopk", "up to 3.68 x, of an enhanced version; against what is not said", "8 hosts"),
}


def here(name: str, records: Sequence[Record]) -> str:
    """How many times as fast as DistributedDataParallel a step was, by link; a dash where it was not measured."""
    found = []
    for group, rows in groups(records).items():
        if (group[0], group[2], group[3]) != CELL:
            continue
        found += [f"{statistics.median(times_as_fast(row)):.3g} at {rate_words(group[1])}" for row in rows if row["contestant"] == name]
    return ", ".join(found) or "-"


def markdown(records: Sequence[Record]) -> str:
    lines = ["| system | its paper | there | here, times DDP |", "|---|---|---|---|"]
    lines += [f"| {system} (`{name}`) | {claim} | {where} | {here(name, records)} |" for name, (system, claim, where) in CLAIMS.items()]
    return "\n".join(lines)
