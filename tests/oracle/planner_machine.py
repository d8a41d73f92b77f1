"""The machine that runs a plan, moment by moment: backward makes gradients ready. An engine does one thing at a
time, decodes arrived buckets before it encodes, and takes the earlier bucket first. A link carries the buckets in
order."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Bucket:
    ready: float
    encode: float
    exchange: float
    decode: float
    needed: float  # after the start of the next forward


def run_backward(buckets: list[Bucket], decodes: bool) -> float:
    """The time at which the engine has no more work and the link is free."""
    now = free = 0.0
    arrives: list[float] = []  # arrival times of the first buckets, whose place on the link is known
    encoded: dict[int, float] = {}
    n_decoded = 0
    while len(encoded) < len(buckets) or (decodes and n_decoded < len(buckets)):
        waiting = [i for i, bucket in enumerate(buckets) if i not in encoded and bucket.ready <= now]
        if decodes and n_decoded < len(arrives) and arrives[n_decoded] <= now:
            now += buckets[n_decoded].decode
            n_decoded += 1
        elif waiting:
            now += buckets[waiting[0]].encode
            encoded[waiting[0]] = now
            while len(arrives) in encoded:
                free = max(free, encoded[len(arrives)]) + buckets[len(arrives)].exchange
                arrives.append(free)
        else:
            events = [bucket.ready for i, bucket in enumerate(buckets) if i not in encoded]
            events += arrives[n_decoded : n_decoded + 1] if decodes else []
            now = min(events)
    return max(now, free)
