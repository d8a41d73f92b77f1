"""What is asked of Penstock on a device, and whether figures meet it. Pure: the parts of figures.json in, a line for each goal out.

A part that was not run is {"skipped": reason}. A goal without its figure is neither met nor missed, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Parts = dict[str, Any]

# Rows of the kernels' benchmark, by the names it gives them.
READ = "read (CUB's sum)"
COMPACTION = "all above a known threshold, 1 %"
EXACT = "exact top-k, 0.1 %"
BY_CUB = "exact top-k by CUB's sort, 0.1 %"
QUANTISERS = (
    "signs packed, zeros listed", "rounded by chance to 127 levels (QSGD)", "rounded by chance to powers of two (natural)",
    "rounded by chance to signs (TernGrad)", "codes of 4 bits packed", "float32 to float16",
    "largest of each bucket of 512", "rounded by chance in buckets of 512 (QSGD)",
)  # fmt: skip
NUMEL, DENSITY = 100_000_000, 0.001
COPIES, LAUNCH_MS = 6, 0.005


class Missing(Exception):
    """Why a figure is not there."""


@dataclass
class Goal:
    """`met` is None where nothing was measured."""

    goal: str
    measured: str
    met: bool | None


def part(parts: Parts, name: str) -> dict[str, Any]:
    found = parts.get(name, {"skipped": "the part was not run"})
    if "skipped" in found:
        raise Missing(found["skipped"])
    return found


def kernel(parts: Parts, what: str) -> dict[str, Any]:
    for row in part(parts, "kernels")["rows"]:
        if row["what"] == what:
            if "wrong" in row:
                raise Missing(f"{what}: {row['wrong']}")
            return row
    raise Missing(f"the benchmark has no row {what!r}")


def rate(row: dict[str, Any]) -> float:
    return row["bytes"] / row["ms"][0]


def of_hundred_million(parts: Parts, what: str) -> dict[str, Any]:
    numel = part(parts, "kernels")["numel"]
    if numel != NUMEL:
        raise Missing(f"measured with {numel} entries")
    return kernel(parts, what)


def at_least(least: float, value: float, words: str) -> tuple[str, bool]:
    return words, value >= least


def at_most(most: float, value: float, words: str) -> tuple[str, bool]:
    return words, value <= most


def compaction(parts: Parts) -> tuple[str, bool]:
    fraction = rate(kernel(parts, COMPACTION)) / rate(kernel(parts, READ))
    return at_least(0.8, fraction, f"{fraction:.0%}")


def top_k_reads(parts: Parts) -> tuple[str, bool]:
    reads = of_hundred_million(parts, EXACT)["ms"][0] / kernel(parts, READ)["ms"][0]
    return at_most(2.2, reads, f"{reads:.2f} reads")


def top_k_over_torch(parts: Parts) -> tuple[str, bool]:
    for row in part(parts, "torch_topk")["rows"]:
        if (row["numel"], row["density"]) == (NUMEL, DENSITY):
            ratio, least, most = row["torch_over_ours"]
            return at_least(3, ratio, f"{ratio:.2f} ({least:.2f} to {most:.2f})")
    raise Missing(f"torch.topk was not timed with {NUMEL} entries")


def top_k_over_cub(parts: Parts) -> tuple[str, bool]:
    ratio = of_hundred_million(parts, BY_CUB)["ms"][0] / kernel(parts, EXACT)["ms"][0]
    return at_least(1.2, ratio, f"{ratio:.2f}, against a sort: the CUB of CUDA 13.0 has no top-k")


def quantisers(parts: Parts) -> tuple[str, bool]:
    slowest = min((kernel(parts, what) for what in QUANTISERS), key=lambda row: row["fraction_of_copy"])
    return at_least(0.85, slowest["fraction_of_copy"], f"{slowest['fraction_of_copy']:.0%}, the slowest: {slowest['what']}")


Row = dict[str, Any]


def rows(parts: Parts, names: Iterable[str], resident: bool) -> list[tuple[str, dict[str, Any], Row]]:
    """Part, model and scheme of all that has figures of the device; where `resident`, only of schemes that work there."""
    reasons, found = [], []
    for name in names:
        try:
            models = part(parts, name)["models"]
        except Missing as reason:
            reasons.append(str(reason))
            continue
        for model in models:
            for row in model["schemes"]:
                if row["device"] is None:
                    reasons.append(row["why_no_device_figures"])
                elif not resident or row["device"]["launches"]:
                    found.append((name, model, row))
    if not found:
        raise Missing(reasons[0] if reasons else "no scheme worked on the device")
    return found


STEPS = ("steps_1", "steps_2")


def where(name: str, model: dict[str, Any], row: Row) -> str:
    ranks = "one rank" if name == "steps_1" else "two ranks"
    return f"{row['scheme']}, {model['model']}, {ranks}"


def launches(parts: Parts) -> tuple[str, bool]:
    def of_bucket(one: tuple[str, dict[str, Any], Row]) -> float:
        return one[2]["device"]["launches"] / max(1, one[2]["buckets"])

    most = max(rows(parts, STEPS, resident=True), key=of_bucket)
    return at_most(12, of_bucket(most), f"{of_bucket(most):.0f} at the most ({where(*most)})")


def none_of(count: str) -> Callable[[Parts], tuple[str, bool]]:
    """That no step of any scheme has any."""

    def check(parts: Parts) -> tuple[str, bool]:
        all_rows = rows(parts, STEPS, resident=False)
        seen = [one for one in all_rows if one[2]["device"][count] is not None]
        if not seen:
            raise Missing(all_rows[0][2]["device"]["unseen"])
        most = max(seen, key=lambda one: one[2]["device"][count])
        found = most[2]["device"][count]
        unseen = "" if len(seen) == len(all_rows) else f"; not seen with {len(all_rows) - len(seen)} of {len(all_rows)}"
        words = f"{found:g}" + (f" ({where(*most)}: {', '.join(most[2]['device']['calls'])})" if found else "")
        return words + unseen, found == 0

    return check


def bound_ms(model: dict[str, Any], row: Row) -> float:
    return COPIES * model["copy_ms"][0] + LAUNCH_MS * row["device"]["launches"]


def stages(parts: Parts) -> tuple[str, bool]:
    """Of one rank: two share the device, and a kernel of one may have waited for the other."""
    of_resnet = [one for one in rows(parts, STEPS[:1], resident=True) if one[1]["model"] == "resnet50"]
    if not of_resnet:
        raise Missing("ResNet-50 was not run")
    over = {one[2]["scheme"]: one[2]["device"]["kernels_ms"] / bound_ms(one[1], one[2]) for one in of_resnet}
    worst = max(over, key=lambda scheme: over[scheme])
    return at_most(1, over[worst], f"{over[worst]:.2f} of that at the most ({worst})")


def overlap(parts: Parts) -> tuple[str, bool]:
    shares = [one[2]["device"]["overlap"] for one in rows(parts, STEPS, resident=True) if one[2]["device"]["overlap"] is not None]
    if not shares:
        raise Missing("the profiler shows no work of the exchange on the device")
    return f"{min(shares):.0%} to {max(shares):.0%} of the exchange's time on the device", True


def ddp(parts: Parts) -> tuple[str, bool]:
    found = part(parts, "steps_2").get("ddp", {"skipped": "it was not run"})
    if "skipped" in found:
        raise Missing(found["skipped"])
    ratio, least, most = found["plain_over_hook"]
    return at_least(0.98, ratio, f"{ratio:.3f} ({least:.3f} to {most:.3f})")


GOALS: tuple[tuple[str, Callable[[Parts], tuple[str, bool]]], ...] = (
    ("compaction at >= 80 % of what a read reaches", compaction),
    ("exact top-k, 0.1 % of 10^8, in <= 2.2 reads", top_k_reads),
    ("the same >= 3 times as fast as torch.topk", top_k_over_torch),
    ("the same >= 1.2 times as fast as CUB", top_k_over_cub),
    ("quantisers at >= 85 % of a copy", quantisers),
    ("<= 12 launches a bucket", launches),
    ("0 waits of the host for the device in a step", none_of("waits")),
    ("0 allocations in a step", none_of("allocations")),
    ("encode and decode of ResNet-50 within 6 device copies and 5 us a launch", stages),
    ("overlap with compute is measured", overlap),
    ("ddp_hook with scheme none >= 0.98 times as fast as DDP over NCCL", ddp),
)


def goals(parts: Parts) -> list[Goal]:
    found = []
    for goal, check in GOALS:
        try:
            measured, met = check(parts)
            found.append(Goal(goal, measured, met))
        except Missing as reason:
            found.append(Goal(goal, f"not measured: {reason}", None))
    return found
