"""Settings that files of conf/ do not have: warm-ups, switches, narrow values, clipping, divided gradients. Each
setting is a scheme with arguments for the optimizer. The simulation does not know these arguments, and they must
not change the result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from quickstart_job import toml_text
from quickstart_job.recipes import CONF, recipe

TASK, STEPS, RANKS, SEED = "digits", 24, 4, 1


@dataclass(frozen=True)
class Setting:
    table: toml_text.Table
    rate: float = 0.2  # of SGD without momentum, because AdamW would hide a wrong factor
    given: dict[str, Any] = field(default_factory=dict)  # arguments of the runtime's optimizer


def _with_early_switches(file: str, every: int) -> toml_text.Table:
    """The switches of a file, `every` steps apart."""
    table = toml_text.load(CONF / file)
    for place, switch in enumerate(table["switch"]):
        switch["at_step"] = place * every
    return table


def _scheme(name: str, **changes: Any) -> toml_text.Table:
    return toml_text.replaced(recipe(name).table(), changes)


def _switched(table: toml_text.Table, *switches: tuple[int, toml_text.Table]) -> toml_text.Table:
    return table | {"switch": [{"at_step": at_step, "set": changes} for at_step, changes in switches]}


_TO_WHOLE = {"scheme": {"compressor": "none"}}
_DENSE_DGC = {"scheme": {"compressor": "none", "memory": "dgc"}, "compressor": {"dgc": {"density": 0.01}}}
_DIVIDED = {"gradient_predivide_factor": 4.0}

SETTINGS: dict[str, Setting] = {
    "dgc.toml, its warm-up": Setting(_with_early_switches("dgc.toml", 4)),
    "dgc-geometric-warmup.toml, its warm-up": Setting(_with_early_switches("dgc-geometric-warmup.toml", 4)),
    "dgc, dense at first": Setting(_switched(_DENSE_DGC, (8, {"scheme": {"compressor": "dgc"}}))),
    "dgc, dense in the end": Setting(_switched(_scheme("dgc"), (12, _TO_WHOLE))),
    "redsync.toml, dense at first": Setting(
        _switched(_scheme("redsync", **{"scheme.compressor": "none"}), (8, {"scheme": {"compressor": "redsync"}}))
    ),
    "top-k, dense in the end": Setting(_switched(_scheme("topk-residual"), (12, _TO_WHOLE))),
    "top-k, another memory": Setting(_switched(_scheme("topk-residual"), (12, {"scheme": {"memory": "none", "compressor": "none"}}))),
    **{f"top-k in {kind}": Setting(_scheme("topk-residual", **{"compressor.topk.value_type": kind})) for kind in ("fp16", "bf16", "int8", "sign")},
    **{f"dgc in {kind}": Setting(_scheme("dgc", **{"compressor.dgc.value_type": kind})) for kind in ("fp16", "bf16", "int8", "sign")},
    **{
        f"dgc, clipping {kind}": Setting(_scheme("dgc", **{"memory.dgc.clipping": kind, "memory.dgc.clip": clip}))
        for kind, clip in (("norm", 0.2), ("norm_global", 0.2), ("value", 0.001), ("value_global", 0.02))
    },
    "s-sgd, divided before": Setting(_scheme("s-sgd"), given=_DIVIDED),
    "top-k, divided before": Setting(_scheme("topk-residual"), given=_DIVIDED),
    "signs, divided before": Setting(_scheme("sign-sgd-majority"), 1e-3, _DIVIDED),
    "signum, divided before": Setting(_scheme("signum"), 1e-3, _DIVIDED),
    "tbq, divided before": Setting(_scheme("tbq"), given=_DIVIDED),
    "threshold, divided before": Setting(_scheme("threshold"), given=_DIVIDED),
    "inceptionn, divided before": Setting(_scheme("inceptionn"), given=_DIVIDED),
    "dgc, clipping value, divided before": Setting(
        _scheme("dgc", **{"memory.dgc.clipping": "value", "memory.dgc.clip": 0.001}), given=_DIVIDED
    ),
    **{
        f"{kind} by chance, {combine}": Setting(
            _scheme("s-sgd", **{
                "scheme.compressor": kind,
                f"compressor.{kind}.rounding": "stochastic",
                f"compressor.{kind}.combine": combine,
            })
        )
        for kind, combine in (("bf16", "sum"), ("fp16", "gather"))
    },
}
