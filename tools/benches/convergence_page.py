"""The words of docs/convergence.md, and how a section gets into it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

SEARCHED_TOLERANCE = 1.5e-4  # bits: tuned.toml has four digits

INTRODUCTION = """\
# Convergence

Every scheme on several ranks against a single-process simulation of its method (`tests/oracle`) with the same weights and data
order. Validation loss in bits per target, mean over seeds. Spread is the largest difference between two seeds of the row. A row of one seed has none: read
it as one draw, for two seeds of top-k 1 % differ by more than most schemes do. Bytes are those of one rank and step. Each section says which command
made it.

**Rates were searched for AdamW alone** (votes: SGD without momentum). So a row says what a scheme does under AdamW; with SGD top-k 1 % ends at 0.594 on digits
instead of 1.261, ef-sign at 0.526 instead of 0.716, beside 0.528 of dense: [which optimizer](#which-optimizer).

"Setting" is what a row has that its file in `conf/`, with the paper's settings, has not. Densities are 1 % where papers have 0.1 %: that
is of models a hundred times larger, and would be one entry of a bias of 128 here. Rules that leave small gradients as they are would
leave all of these, so they are dropped where that is so.

Every row trains at its own best learning rate of three at least, which `tools/bench tune` searched with the simulations, on the first seed
and for as many steps as here (`tools/quickstart_job/tuned.toml` has all that was tried). The optimizer is AdamW, and no other was searched; without its first beta where the memory
has a momentum (dgc); votes go with SGD without momentum. On digits training stops where dense training stops improving, at step
{digits_steps}: later, what slows a method down only keeps it from overfitting. Neighbouring rates differ by a factor of three, and the validation
set of digits is small: differences within the spread of the seeds say nothing about which method is better, and a gap to dense holds
for this task, this length and this optimizer.

"Agrees" says that the runtime computes the rule of the simulation, which is written from our reading of the method. For most rows
that is the paper's rule. For these it is ours, which differs from the paper or its release where the plugin's README says so, and the agreement
says nothing about theirs:

- Gaussian-k, RedSync, SIDCo: the number sent is steered to within a tenth of k, by what the last steps taught.
- AdaQ: the thresholds of both signs are steered likewise.
- ADTopk, threshold mode: when a threshold is computed anew.
- Ok-Topk: a threshold that is zero or far off is computed anew before its period is over; selection is by gradient.
- Power-SGD: what a rank keeps is against what its own factors decode to; the releases subtract what the average decodes to.

Methods that fit a threshold to statistics (Gaussian-k, SIDCo) have the simulation's losses to the bit for the first steps; then a sum's
last bit decides whether one entry passes, and the two runs part as two seeds do: there only the means over seeds say anything. So with one
seed of a method that draws its chance otherwise than the simulation (natural): where its row differs, the section with three seeds counts.

Wanted: the first {first_losses} losses to {first_tolerance:g} relative where nothing is sampled; final means within their spread or
{final_tolerance} bits; and that it trains: the loss ends below {well_below:g} of where it began.
"""


class Searched(Protocol):
    """What a row has of the search for its rate."""

    @property
    def label(self) -> str: ...
    @property
    def first_seed_simulated_bits(self) -> float: ...
    @property
    def searched_bits(self) -> float | None: ...


def against_the_search(comparisons: Sequence[Searched]) -> str:
    """Where the simulation of the first seed ends elsewhere than on the machine on which the rate was searched."""
    apart = [
        f"{c.label} {c.first_seed_simulated_bits:.4f} ({c.searched_bits:.4f})"
        for c in comparisons
        if c.searched_bits is not None and abs(c.first_seed_simulated_bits - c.searched_bits) > SEARCHED_TOLERANCE
    ]
    if not apart:
        return ""
    return (
        "The simulation of the first seed, and in brackets what `tuned.toml` has of it from the machine on which rates were searched, where sums end in "
        f"other bits: {', '.join(apart)}. All others are equal.\n"
    )


def write_section(page: Path, title: str, text: str, **limits: float) -> None:
    """Puts a section of that title into the page, in place of the one it has; the others stay. `limits` are what the
    introduction names."""
    known = page.read_text().split("\n## ")[1:] if page.exists() else []
    sections = {section.split("\n", 1)[0]: section.split("\n", 1)[1].strip("\n") for section in known}
    sections[title] = text.strip("\n")
    page.write_text(INTRODUCTION.format(**limits) + "".join(f"\n## {name}\n\n{body.strip(chr(10))}\n" for name, body in sections.items()))
