"""The words of docs/convergence.md, and how a section gets into it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

SEARCHED_TOLERANCE = 1.5e-4  # bits: tuned.toml has four digits

INTRODUCTION = """\
# Convergence

Every scheme trains on several ranks and is compared with a single-process simulation of its method
(`tests/oracle`), with equal weights and data order. Figures are the validation loss in bits per
target, mean over seeds. *Spread* is the largest difference between two seeds of a row. A row of one
seed has no spread. Do not rank schemes by such rows, because the losses of two seeds of one scheme
(top-k 1 %) may differ more than the means of most schemes. Bytes are the payload that one rank
gives to the transport in a step; a gathered payload is sent P - 1 times (the README's table counts
the bytes moved, with these repetitions). Each section gives its command.

**Rates were searched only for AdamW** (for votes: SGD without momentum). So a row shows a scheme
under AdamW. With SGD top-k 1 % and ef-sign come much closer to dense training: see
[which optimizer](#which-optimizer).

*Setting* lists the differences of a row from its file in `conf/`, which has the paper's settings.
Densities are 1 % instead of the papers' 0.1 %, because papers have models a hundred times larger;
0.1 % of a bias of 128 would be one entry here. Rules that leave small gradients uncompressed would
apply to every gradient here, so they are dropped in such rows.

Every row trains at its own best learning rate of at least three. `tools/bench tune` searched it
with the simulations, on the first seed and for this number of steps
(`tools/quickstart_job/tuned.toml` has all tried rates). The optimizer is AdamW, without its first
beta if the memory has a momentum (dgc); votes use SGD without momentum. On digits training stops at
step {digits_steps}, when dense training stops improving. After this step dense training overfits, and a slower
method would look better only because it overfits later. Neighbouring rates differ by a factor of
three, and the validation set of digits is small. So differences within the spread of the seeds do
not rank methods, and a gap to dense holds for this task, this length and this optimizer.

"Agrees" means that the runtime computes the rule of the simulation, which was written from our
reading of the method. For most rows this is the paper's rule. In the rows below the rule is ours
and differs from the paper or its release; the plugin's README explains the difference. There
agreement says nothing about the paper's rule:

- Gaussian-k, RedSync, SIDCo: the threshold is corrected by the counts of the preceding steps, so
  that the number of sent entries stays within a tenth of k.
- AdaQ: the thresholds of both signs are corrected in this way too.
- ADTopk, threshold mode: the moment at which a threshold is computed anew.
- Ok-Topk: a threshold that is zero or far off is computed anew before its period is over. Each rank
  selects within each gradient, not among all of them.
- Power-SGD: a rank subtracts the decoded product of its own factors; the releases subtract the
  decoded average.

Methods that fit a threshold to statistics (Gaussian-k, SIDCo) have the simulation's losses to the
bit in the first steps. Then the last bit of a sum decides whether one entry passes. From there on
the losses of the two runs differ as much as those of two runs with different seeds, so only means
over seeds can be compared. Natural compression draws its random numbers differently from the
simulation, so for one seed its row may differ; the section with three seeds counts.

Goals: the first {first_losses} losses agree to {first_tolerance:g} relative, except in rows with "(samples)", whose methods
select by a sample or round by chance to a power of two; final means agree within their spread or
{final_tolerance} bits; and the loss ends below {well_below:g} of its start.
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
    said = (
        "The rates were searched on a machine on which sums have other last bits. So some losses in `tuned.toml` differ from the losses of the "
        f"simulation here (first seed; the loss in `tuned.toml` is in brackets): {', '.join(apart)}. All other losses are equal."
    )
    return textwrap.fill(said, 100, break_long_words=False, break_on_hyphens=False) + "\n"


def write_section(page: Path, title: str, text: str, **limits: float) -> None:
    """Puts a section of that title into the page, in place of the one it has; the others stay. `limits` are what the
    introduction names."""
    known = page.read_text().split("\n## ")[1:] if page.exists() else []
    sections = {section.split("\n", 1)[0]: section.split("\n", 1)[1].strip("\n") for section in known}
    sections[title] = text.strip("\n")
    page.write_text(INTRODUCTION.format(**limits) + "".join(f"\n## {name}\n\n{body.strip(chr(10))}\n" for name, body in sections.items()))
