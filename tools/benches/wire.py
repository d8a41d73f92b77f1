"""The coders of the wire (sdk/wire) on one core: entries a second beside a copy, and bits a position beside entropy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rows = list[tuple[str, str, str]]

# Least 10^9 entries a second.
GOALS = {"blocks, write": 10.0, "rice, write": 0.5, "rice, read": 0.3}
MOST_OVER_ENTROPY = 1.03


def verdict(goal: str, met: bool) -> str:
    return goal if met else f"{goal} (missed)"


def table(figures: dict[str, Any], spread: Callable[[list[float], str], str]) -> Rows:
    rows: Rows = []
    for row in figures["rows"]:
        least = GOALS.get(row["what"])
        goal = "" if least is None else verdict(f">= {least:g} G/s", row["rate"][0] >= least)
        beside = spread(row["memcpy"], " x memcpy")
        rows.append((f"{row['entries']} {row['what']}", f"{spread(row['rate'], ' G/s')}; {beside}", goal))
    for size in figures["sizes"]:
        bits = {name: size[name] for name in ("raw", "blocks", "rice") if name in size}
        over = min(bits.values()) / size["entropy"]
        text = ", ".join(f"{name} {value:.4g}" for name, value in bits.items())
        rows.append((f"bits a position at {100 * size['density']:g} %, entropy {size['entropy']:.4g}", text,
                     verdict(f"shortest {over:.4f} of it, <= {MOST_OVER_ENTROPY:g}", over <= MOST_OVER_ENTROPY)))
    return rows
