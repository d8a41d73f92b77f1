"""The schemes of the job: which file of conf/, which keys differ from the published setting, and the optimizer.

The files in conf/ carry the settings of the papers, which are made for models a hundred times larger; a density of
0.1 % of a bias of 128 would be one entry. The last table of the job lists the settings that are replaced here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from . import toml_text
from .optimizers import Optimizer, tuned

CONF = Path(__file__).resolve().parents[2] / "conf"


@dataclass(frozen=True)
class Rounds:
    """How ranks train apart: arguments of LocalSteps."""

    every: int
    delay: int = 0
    mix: float = 0.0

    @property
    def setting(self) -> str:
        """The arguments in words."""
        return f"every = {self.every}" + (f", delay = {self.delay}, mix = {self.mix:g}" if self.delay else "")


@dataclass(frozen=True)
class Recipe:
    """One line of the comparison."""

    name: str
    file: Path
    label: str
    changes: dict[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()  # top-level tables left out
    votes: bool = False  # results are signs without a size, so the rate of SGD is the step
    own_momentum: bool = False  # in the scheme's memory: the optimizer has none
    rounds: Rounds | None = None  # of ranks that train apart and exchange their drift; none: gradients in every step
    fixed: Optimizer | None = None  # in place of the tuned one

    def optimizer(self, task: str) -> Optimizer:
        """The optimizer of the training: AdamW, or SGD without momentum for votes, at the best known rate for the task."""
        if self.fixed is not None:
            return self.fixed
        kind, momentum = ("sgd", 0.0) if self.votes else ("adamw", 0.0 if self.own_momentum else 0.9)
        return tuned(task, self.name, kind, momentum)

    @property
    def setting(self) -> str:
        """The differences from the file in conf/, in words."""
        words = [f"{key.split('.')[-1]} = {value}" for key, value in self.changes.items()]
        words += [self.rounds.setting] if self.rounds else []
        return ", ".join(words + [f"without [[{table}]]" for table in self.without]) or "as published"

    def table(self) -> toml_text.Table:
        """The scheme as nested dictionaries, changes applied."""
        table = {key: value for key, value in toml_text.load(self.file).items() if key not in self.without}
        return toml_text.replaced(table, self.changes)

    def text(self, bucket_bytes: int | None = None) -> str:
        """The scheme as TOML text for one optimizer: without [runtime], which belongs to the run. With `bucket_bytes`
        gradients are merged up to that size, so that the first ones travel while backward is still at work; a collective
        that cuts the whole model into regions keeps its one bucket, and so does a drift, of which nothing travels early."""
        table = {key: value for key, value in self.table().items() if key != "runtime"}
        scheme = table.get("scheme", {})
        if bucket_bytes is not None and self.rounds is None and scheme.get("scheduler") == "fusion" and "collective" not in scheme:
            table = toml_text.replaced(table, {"scheduler.fusion.threshold_bytes": bucket_bytes})
        return toml_text.dump(table)


# ADTopk's selection alone: which gradients its scheduler keeps dense depends on measured times, and no simulation knows those.
SELECTION = {"scheme.scheduler": "fusion", "scheme.candidates": ["adtopk"]}

_RECIPES = (
    Recipe("s-sgd", CONF / "s-sgd.toml", "s-sgd (dense)"),
    Recipe("wfbp", CONF / "wfbp.toml", "wfbp"),
    Recipe("fusion", CONF / "fusion.toml", "fusion"),
    Recipe("dear", CONF / "dear.toml", "dear"),
    Recipe("one-step-late", CONF / "one-step-late.toml", "one step late"),
    Recipe("topk-residual", CONF / "topk-residual.toml", "top-k 1 %", {"compressor.topk.density": 0.01}),
    Recipe("topk-residual-fp32", CONF / "topk-residual.toml", "top-k 1 %, fp32", {"compressor.topk.value_type": "fp32"}),
    Recipe("top-k-signs", CONF / "top-k-signs.toml", "top-k 1 %, signs"),
    Recipe("dgc", CONF / "dgc.toml", "dgc 1 %", {"compressor.dgc.density": 0.01}, ("switch",), own_momentum=True),
    Recipe("power-sgd", CONF / "power-sgd.toml", "power-sgd rank 4", {"compressor.powersgd.rank": 4}),
    Recipe("acp-sgd", CONF / "acp-sgd.toml", "acp-sgd rank 4", {"compressor.acpsgd.rank": 4}),
    Recipe(
        "power-sgd-alternating",
        CONF / "power-sgd-alternating.toml",
        "power-sgd alternating rank 4",
        {"compressor.powersgd-alternating.rank": 4},
    ),
    *(
        Recipe(
            f"{name}-bf16",
            CONF / f"{name}.toml",
            f"{label} rank 4, bf16",
            {f"compressor.{plugin}.rank": 4, f"compressor.{plugin}.value_type": "bf16"},
        )
        for name, label, plugin in (
            ("power-sgd", "power-sgd", "powersgd"),
            ("acp-sgd", "acp-sgd", "acpsgd"),
            ("power-sgd-alternating", "power-sgd alternating", "powersgd-alternating"),
        )
    ),
    Recipe("random-k", CONF / "random-k.toml", "random-k 1 %", {"compressor.randomk.density": 0.01}),
    Recipe("chunk-top-k", CONF / "chunk-top-k.toml", "chunk top-k 1 %"),
    Recipe("arc-top-k", CONF / "arc-top-k.toml", "arc-top-k 8 %"),
    Recipe("threshold", CONF / "threshold.toml", "threshold 0.01"),
    Recipe("adtopk", CONF / "adtopk.toml", "adtopk 1 %", SELECTION, ("scheduler",)),
    Recipe("adtopk-plain", CONF / "adtopk.toml", "adtopk plain 1 %", SELECTION | {"compressor.adtopk.mode": "plain"}, ("scheduler",)),
    Recipe(
        "adtopk-threshold",
        CONF / "adtopk.toml",
        "adtopk threshold 1 %",
        SELECTION | {"compressor.adtopk.mode": "threshold"},
        ("scheduler",),
    ),
    Recipe("sign-sgd-majority", CONF / "sign-sgd-majority.toml", "sign-sgd majority", votes=True),
    Recipe("signum", CONF / "signum.toml", "signum", votes=True),
    Recipe("ef-sign", CONF / "ef-sign.toml", "ef-sign"),
    Recipe("ef21-sgdm", CONF / "ef21-sgdm.toml", "ef21-sgdm 1 %", own_momentum=True),
    Recipe("diana", CONF / "diana.toml", "diana 4 bits"),
    Recipe("covap", CONF / "covap.toml", "covap, every 4 steps"),
    Recipe("sparseloco", CONF / "sparseloco.toml", "sparseloco's exchange"),
    Recipe("demo", CONF / "demo.toml", "demo 32 of 4096", votes=True),
    Recipe("one-bit", CONF / "one-bit.toml", "one-bit"),
    Recipe("qsgd", CONF / "qsgd.toml", "qsgd 4 bits", {}, ("rule",)),
    Recipe("terngrad", CONF / "terngrad.toml", "terngrad"),
    Recipe("natural", CONF / "natural.toml", "natural"),
    Recipe("cgx", CONF / "cgx.toml", "cgx 4 bits"),
    Recipe("int8", CONF / "int8.toml", "int8"),
    Recipe("tbq", CONF / "tbq.toml", "tbq", {"compressor.tbq.threshold": 0.01}, ("rule",)),
    Recipe("inceptionn", CONF / "inceptionn.toml", "inceptionn"),
    # The share and the columns of the paper's experiments; at 1 % with 25 columns a sketch is larger than the gradient.
    Recipe(
        "sketch",
        CONF / "sketch.toml",
        "sketch 0.8 %",
        {"compressor.sketch.density": 0.008, "compressor.sketch.columns_per_entry": 10},
    ),
    Recipe("ok-topk", CONF / "ok-topk.toml", "ok-topk 1 %", {"compressor.topk.density": 0.01}),
    Recipe("fgbuff", CONF / "fgbuff.toml", "fgbuff", {"compressor.topk.density": 0.01}),
    Recipe("gaussian-k", CONF / "gaussian-k.toml", "gaussian-k 1 %", {"compressor.gaussiank.density": 0.01}),
    Recipe("redsync", CONF / "redsync.toml", "redsync 1 %", {"compressor.redsync.density": 0.01}),
    # The largest gradients of these jobs are of the two smaller classes of size: bisected, they have no rules.
    Recipe("redsync-bisection", CONF / "redsync.toml", "redsync bisection 1 %", {"compressor.redsync.density": 0.01}, ("rule",)),
    Recipe(
        "redsync-quantised",
        CONF / "redsync.toml",
        "redsync quantised 1 %",
        {"compressor.redsync.density": 0.01, "compressor.redsync.quantised": True},
        ("rule",),
    ),
    Recipe("sidco", CONF / "sidco.toml", "sidco 1 %", {"compressor.sidco.density": 0.01}),
    Recipe(
        "sidco-pareto",
        CONF / "sidco.toml",
        "sidco pareto 1 %",
        {"compressor.sidco.density": 0.01, "compressor.sidco.law": "pareto"},
    ),
    Recipe(
        "sidco-gamma",
        CONF / "sidco.toml",
        "sidco gamma 1 %",
        {"compressor.sidco.density": 0.01, "compressor.sidco.law": "gamma_pareto"},
    ),
    Recipe(
        "sidco-gaussian",
        CONF / "sidco.toml",
        "sidco gaussian 1 %",
        {"compressor.sidco.density": 0.01, "compressor.sidco.law": "gaussian", "compressor.sidco.stages": 1},
    ),
    Recipe("adacomp", CONF / "adacomp.toml", "adacomp"),
    Recipe("adaq", CONF / "adaq.toml", "adaq 1 %"),
    # Of the main job: its links are slow enough for settings that keep more to pay.
    Recipe("dgc-3", CONF / "dgc.toml", "dgc 3 %", {"compressor.dgc.density": 0.03}, ("switch",), own_momentum=True),
    Recipe("power-sgd-8", CONF / "power-sgd.toml", "power-sgd rank 8", {"compressor.powersgd.rank": 8}),
    Recipe("acp-sgd-8", CONF / "acp-sgd.toml", "acp-sgd rank 8", {"compressor.acpsgd.rank": 8}),
    # The paper has 64 of 4096 and rounds of 30 steps, for long training. Of the main job's 200 steps these would be seven rounds.
    # docs/performance.md has the steps to a loss by entries, H and delay.
    Recipe(
        "sparseloco-every-3",
        CONF / "sparseloco.toml",
        "sparseloco 6.25 %, H = 3",
        {"compressor.blocktopk.k": 256},
        rounds=Rounds(every=3, delay=1, mix=0.5),
    ),
    Recipe("ok-topk-3", CONF / "ok-topk.toml", "ok-topk 3 %", {"compressor.topk.density": 0.03}),
)

QUICKSTART = ("s-sgd", "dgc-3", "power-sgd-8", "acp-sgd-8", "sign-sgd-majority", "qsgd", "sparseloco-every-3")
KNOWN = tuple(recipe.name for recipe in _RECIPES)


def recipe(name: str) -> Recipe:
    """The recipe called `name`."""
    for known in _RECIPES:
        if known.name == name:
            return known
    raise ValueError(f"scheme is {name!r}, expected one of {', '.join(KNOWN)}")


def recipe_of_file(path: Path) -> Recipe:
    """The unchanged scheme of a user's file. If the file is in conf/, the recipe's optimizer; else an optimizer that fits
    its memory and its compressor, at a middle rate."""
    for known in _RECIPES:
        if known.file == path.resolve():
            return replace(known, file=path, label=path.stem, changes={}, without=())
    scheme = toml_text.load(path).get("scheme", {})
    if not isinstance(scheme, dict):
        raise ValueError(f"{path}: scheme is {scheme!r}, expected a table")
    votes = scheme.get("compressor") in ("signsgd", "signum", "demo")
    return Recipe(path.stem, path, path.stem, votes=votes, own_momentum=scheme.get("memory") in ("dgc", "momentum", "ef21"))
