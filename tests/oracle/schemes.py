"""Makes the simulation of a scheme file that tomllib has parsed. The oracle and the core have different parsers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from .blocks import BlockTopK, Demo
from .coded import Inceptionn, Int8, MaxMin, Sketch, Tbq
from .dense import DenseMean, MajorityVote, RoundedMean
from .dgc import DenseWithMomentum, Dgc, DgcOptions
from .late import OneStepLate
from .low_rank import AcpSgd, PowerSgd
from .method import Item, Method, Scheme
from .ok_topk import OkTopK
from .routes import Hierarchical, Part, Shard, owners_on, parts
from .quantised import Quantised, Send, Signum, cast, ef_sign, natural, one_bit, qsgd, tern_grad
from .threshold import AdaComp, AdaQ, FixedThreshold, GaussianK, RedSync, Sidco
from .shift import Diana, Ef21, by_chance, by_top_k
from .sparse_more import AdTopK, AlternatingPowerSgd, ArcTopK, ChunkTopK, Covap, RandomK
from .switching import Stage, SwitchingScheme
from .top_k import TopK

Table = Mapping[str, Any]

FUSION_BYTES = 25 * 1024 * 1024


# Methods of threshold.py and the options they simulate.
THRESHOLDS: dict[str, tuple[type[FixedThreshold], tuple[str, ...]]] = {
    "threshold": (FixedThreshold, ("threshold", "capacity", "value_type")),
    "gaussiank": (GaussianK, ("density", "reuse_period", "value_type")),
    "redsync": (RedSync, ("density", "reuse_period", "search", "quantised", "value_type")),
    "sidco": (Sidco, ("density", "reuse_period", "law", "stages", "first_ratio", "value_type")),
    "adaq": (AdaQ, ("density",)),
    "adacomp": (AdaComp, ("bin_length", "capacity")),
}


# Methods of quantised.py: the functions `send`, and the options that they simulate.
QUANTISED: dict[str, tuple[Callable[..., Send], tuple[str, ...]]] = {
    "efsign": (lambda: ef_sign, ()),
    "onebit": (one_bit, ("bucket",)),
    "qsgd": (qsgd, ("bits", "bucket", "norm")),
    "terngrad": (tern_grad, ("clip",)),
    "natural": (lambda: natural, ()),
}


CASTS = {"fp16": torch.float16, "bf16": torch.bfloat16}


# Methods of sparse_more.py and the options they simulate.
SPARSE_MORE: dict[str, tuple[type[RandomK | ChunkTopK | ArcTopK | AdTopK | Covap], tuple[str, ...]]] = {
    "randomk": (RandomK, ("density", "unbiased", "value_type")),
    "chunktopk": (ChunkTopK, ("density", "chunk", "value_type")),
    "arctopk": (ArcTopK, ("density", "rank", "value_type")),
    "covap": (Covap, ("interval",)),
    "adtopk": (AdTopK, ("density", "mode", "warm_up_steps", "reuse_steps", "total_steps", "value_type")),
}


def items_of(model: nn.Module) -> list[Item]:
    """The gradients of a model in registration order."""
    return [Item(name, index, tuple(p.shape)) for index, (name, p) in enumerate(model.named_parameters())]


def buckets(items: Sequence[Item], limit_bytes: int) -> list[list[Item]]:
    """Greedy fusion in backward order (last registered first): a bucket closes when the next item would not fit."""
    result: list[list[Item]] = []
    size = 0
    for item in reversed(items):
        if not result or size + 4 * item.numel > limit_bytes:
            result.append([])
            size = 0
        result[-1].append(item)
        size += 4 * item.numel
    return result


def _within(value: int, wanted: int | Table) -> bool:
    """True if a value is in a rule's range: an integer, or { min = , max = }."""
    if isinstance(wanted, int):
        return value == wanted
    return wanted.get("min", 0) <= value <= wanted.get("max", value)


def _matches(match: Table, item: Item) -> bool:
    """All conditions of a [[rule]] hold: name globs, dims, elements, dtype."""
    unknown = set(match) - {"name", "dims", "elements", "dtype"}
    if unknown:
        raise ValueError(f"a rule matches by {sorted(unknown)}, which this oracle does not simulate")
    names = match.get("name", "*")
    return (
        any(fnmatchcase(item.name, glob) for glob in ([names] if isinstance(names, str) else names))
        and _within(len(item.shape), match.get("dims", {}))
        and _within(item.numel, match.get("elements", {}))
        and match.get("dtype", "float32") == "float32"
    )


@dataclass(frozen=True)
class Choice:
    """The compressor and the memory of one gradient."""

    rule: int  # 0: no rule, else from 1
    compressor: Table  # the plugin's name under "plugin", and its options
    memory: Table


def _instance(table: Table, rule: Table, kind: str) -> Table:
    """Options of the instance for `kind`. The options of the rule replace the options of the file."""
    name = rule.get(kind, table.get("scheme", {}).get(kind, "none"))
    options = {"plugin": name} | table.get(kind, {}).get(name, {})
    return options | rule.get("options", {}).get(kind, {}).get(name, {})


def choose(table: Table, item: Item) -> Choice:
    """The first rule that matches. Keys that the rule leaves out come from [scheme]."""
    for number, rule in enumerate(table.get("rule", []), start=1):
        if _matches(rule["match"], item):
            return Choice(number, _instance(table, rule, "compressor"), _instance(table, rule, "memory"))
    return Choice(0, _instance(table, {}, "compressor"), _instance(table, {}, "memory"))


def _options(instance: Table, names: Mapping[str, str]) -> dict[str, Any]:
    """The options of an instance under our argument names; "" for options that change no result. An option that the oracle
    does not know is an error, because otherwise two different methods would be compared."""
    unknown = set(instance) - set(names) - {"plugin"}
    if unknown:
        raise ValueError(f"{instance['plugin']} has options {sorted(unknown)}, which this oracle does not simulate")
    return {names[key]: value for key, value in instance.items() if names.get(key)}


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def _dgc_options(choice: Choice, seed: int) -> DgcOptions:
    names = _same("momentum", "nesterov", "clipping", "clip") | {"momentum_masking": "masking"}
    # A plain residual is a velocity without momentum.
    memory = {"momentum": 0.0} | _options(choice.memory, {}) if choice.memory["plugin"] == "residual" else _options(choice.memory, names)
    if choice.compressor["plugin"] != "dgc":
        return DgcOptions(seed=seed, **memory)
    own = {"value_type": "auto"} | _options(choice.compressor, _same("density", "sample_ratio", "value_type"))
    return DgcOptions(seed=seed, **memory, **own)


def _coded(choice: Choice, items: list[Item], ranks: int, seed: int) -> Method:
    """Methods that send codes of few bits, with a plain residual or without a memory, and the count sketch, which
    needs a residual."""
    name, memory = choice.compressor["plugin"], choice.memory["plugin"]
    if memory not in ("none", "residual") or (name == "sketch" and memory == "none"):
        raise ValueError(f"{name} goes with memory {memory!r}, which this oracle does not simulate")
    if choice.memory.get("beta", 1.0) != 1.0 or choice.memory.get("gamma", 1.0) != 1.0:
        raise ValueError(f"{name} goes with a residual that decays, which this oracle does not simulate")
    if name == "sketch":
        names = _same("density", "rows", "columns_per_entry")
        return Sketch(items, ranks, seed=seed, **_options(choice.compressor, names))
    keeps = memory == "residual"
    if name == "maxmin":
        return MaxMin(items, ranks, keeps, seed=seed, **_options(choice.compressor, _same("bits", "block", "rounding")))
    if name == "int8":
        return Int8(items, ranks, keeps, **_options(choice.compressor, _same("block")))
    if name == "tbq":
        return Tbq(items, ranks, keeps, **_options(choice.compressor, _same("threshold")))
    return Inceptionn(items, ranks, keeps, **_options(choice.compressor, _same("bound_bits")))


def _sparse_more(choice: Choice, items: list[Item], ranks: int, seed: int) -> Method:
    """Random-k, chunks, rows and ADTopk, with a plain residual or without a memory; COVAP also with a residual that decays."""
    memory = choice.memory
    method, names = SPARSE_MORE[choice.compressor["plugin"]]
    decays = memory.get("beta", 1.0) != 1.0 and method is not Covap
    if memory["plugin"] not in ("none", "residual") or decays or memory.get("gamma", 1.0) != 1.0:
        raise ValueError(f"the memory is {dict(memory)}, which this oracle does not simulate; a plain residual or none")
    options = _options(choice.compressor, _same(*names))
    if method is Covap:
        options["beta"] = memory.get("beta", 1.0)
    if method is AdTopK:
        options.setdefault("value_type", "auto")
    seeds = {"seed": seed} if method in (RandomK, ArcTopK) else {}
    return method(items, ranks, memory["plugin"] == "residual", **options, **seeds)


def _blocks(choice: Choice, items: list[Item], ranks: int) -> Method:
    """Block top-k and DeMo, with a residual that may decay, or none."""
    memory = choice.memory
    if memory["plugin"] not in ("none", "residual"):
        raise ValueError(f"the memory is {dict(memory)}, which this oracle does not simulate; a residual or none")
    kind, names = (Demo, ("k", "value_type", "sign")) if choice.compressor["plugin"] == "demo" else (BlockTopK, ("k", "value_type", "mean"))
    options = _options(choice.compressor, _same(*names)) | _options(memory, _same("beta"))
    return kind(items, ranks, memory["plugin"] == "residual", **options)


def _shifted(choice: Choice, items: list[Item], ranks: int, seed: int) -> Method:
    """Methods with a shift: the difference from the shift is sent by top-k or quantised."""
    name = choice.compressor["plugin"]
    if name == "topk":
        compress = by_top_k(**_options(choice.compressor, _same("density")))
    elif name in QUANTISED:
        make_send, names = QUANTISED[name]
        compress = by_chance(make_send(**_options(choice.compressor, _same(*names))), seed)
    else:
        raise ValueError(f"{name} goes with memory {choice.memory['plugin']!r}, which this oracle does not simulate")
    if choice.memory["plugin"] == "ef21":
        return Ef21(items, ranks, compress, **_options(choice.memory, _same("zeta")))
    return Diana(items, ranks, compress, **_options(choice.memory, _same("alpha")))


def _methods(table: Table, choice: Choice, items: list[Item], ranks: int, seed: int) -> list[Method]:
    """The methods for `items`: one method for each bucket, if the method depends on buckets."""
    name = choice.compressor["plugin"]
    if choice.memory["plugin"] in ("ef21", "diana"):
        return [_shifted(choice, items, ranks, seed)]
    if name == "none":
        if choice.memory["plugin"] == "dgc":
            return [DenseWithMomentum(items, ranks, _dgc_options(choice, seed))]
        return [DenseMean(items, ranks)]
    if name in CASTS:
        options = _options(choice.compressor, _same("rounding", "combine"))
        keeps = choice.memory["plugin"] == "residual"
        if options.pop("combine", "sum") == "gather":
            return [Quantised(items, ranks, keeps, cast(CASTS[name], **options), seed)]
        adds_on = table.get("scheme", {}).get("route") == "hierarchical"
        return [RoundedMean(items, ranks, CASTS[name], **options, seed=seed, rounds_sums=adds_on)]
    if name == "signsgd" or (name == "signum" and choice.memory["plugin"] == "none"):
        return [MajorityVote(items, ranks)]
    if name in ("maxmin", "int8", "tbq", "inceptionn", "sketch"):
        return [_coded(choice, items, ranks, seed)]
    if name == "dgc":
        return [Dgc(items, ranks, _dgc_options(choice, seed))]
    if name in ("powersgd", "acpsgd"):
        kind = PowerSgd if name == "powersgd" else AcpSgd
        if not choice.compressor.get("warm_start", True):
            raise ValueError("warm_start is false, which this oracle does not simulate")
        names = _same("rank", "minimum_compression_rate", "value_type") | {"warm_start": ""}
        return [kind(items, ranks, seed=seed, **_options(choice.compressor, names))]
    if name == "signum":
        if choice.memory["plugin"] != "momentum":
            raise ValueError(f"signum has the memory {choice.memory['plugin']}, this oracle simulates momentum")
        return [Signum(items, ranks, **_options(choice.memory, _same("momentum")))]
    if name in QUANTISED:
        if choice.memory["plugin"] not in ("none", "residual") or set(choice.memory) > {"plugin"}:
            raise ValueError(f"{name} has the memory {dict(choice.memory)}, this oracle simulates none or a plain residual")
        make_send, names = QUANTISED[name]
        send = make_send(**_options(choice.compressor, _same(*names)))
        return [Quantised(items, ranks, choice.memory["plugin"] == "residual", send, seed)]
    if name in THRESHOLDS:
        method, names = THRESHOLDS[name]
        if choice.memory["plugin"] != "residual" or set(choice.memory) > {"plugin"}:
            raise ValueError(f"{name} has the memory {dict(choice.memory)}, this oracle simulates a plain residual")
        open_type = {"value_type": "auto"} if "value_type" in names else {}
        return [method(items, ranks, **open_type | _options(choice.compressor, _same(*names)))]
    if name == "powersgd-alternating":
        names = _same("rank", "minimum_compression_rate", "value_type")
        return [AlternatingPowerSgd(items, ranks, seed=seed, **_options(choice.compressor, names))]
    if name in ("blocktopk", "demo"):
        return [_blocks(choice, items, ranks)]
    if name in SPARSE_MORE:
        return [_sparse_more(choice, items, ranks, seed)]
    if name != "topk":
        raise ValueError(f"compressor is {name!r}, which this oracle does not simulate")
    options = {"density": 0.01, "value_type": "auto"} | _options(choice.compressor, _same("density", "scope", "value_type"))
    scheme = table.get("scheme", {})
    cuts = buckets(items, 0 if scheme.get("scheduler") == "wfbp" else FUSION_BYTES)
    collective = _instance(table, {}, "collective")
    if collective["plugin"] != "oktopk":
        return [TopK(bucket, ranks, **options) for bucket in cuts]
    options |= _options(collective, _same("threshold_period", "boundary_period", "adjust"))
    return [OkTopK(bucket, ranks, **options) for bucket in cuts]


# A gradient may be cut at multiples of these numbers of elements. Other compressors send whole gradients.
ALIGNMENTS = {
    **dict.fromkeys(("none", "fp16", "bf16", "topk", "threshold", "randomk", "covap"), 1),
    **dict.fromkeys(("signsgd", "signum", "tbq", "inceptionn"), 64),
    "natural": 1024,
}
# The same, as an option and its default; 0: whole.
BLOCKS = {"qsgd": ("bucket", 512), "maxmin": ("block", 512), "int8": ("block", 2048), "onebit": ("bucket", 0)}

# Compressors whose payloads the transport adds. On `shard` their gradients travel as on `flat`.
SUMMED = {"none", "fp16", "bf16", "powersgd", "acpsgd", "powersgd-alternating", "randomk", "chunktopk", "arctopk", "covap", "sketch"}

VOTES = {"signsgd", "signum"}


def _is_summed(choice: Choice) -> bool:
    return choice.compressor["plugin"] in SUMMED and choice.compressor.get("combine", "sum") == "sum"


def _alignment(choice: Choice, item: Item) -> int:
    name = choice.compressor["plugin"]
    if name in ("powersgd", "acpsgd", "powersgd-alternating", "arctopk"):
        return 1 if len(item.shape) < 2 else 0
    if name in ("blocktopk", "demo"):
        raise ValueError(f"{name} is cut between rows of blocks, which this oracle does not simulate; it simulates the route flat")
    if choice.compressor.get("scope", "item") != "item":
        raise ValueError(f"{name} chooses across buckets, which this oracle simulates on the route flat alone")
    option, block = BLOCKS.get(name, ("", ALIGNMENTS.get(name, 0)))
    return choice.compressor.get(option, block)


def _routed(table: Table, choice: Choice, own: list[Part], hosts: Sequence[int], seed: int) -> list[Method]:
    """The methods for these parts on the route of the file."""
    name = choice.compressor["plugin"]

    def make(by: Choice) -> Callable[[list[Item], int], list[Method]]:
        return lambda items, ranks: _methods(table, by, items, ranks, seed)

    if table["scheme"]["route"] == "hierarchical":
        return [Hierarchical(hosts, own, make(choice), name not in VOTES)]
    if _is_summed(choice):
        return make(choice)(list(dict.fromkeys(part.gradient for part in own)), len(hosts))
    owner = choice
    if "owner_memory" in table["scheme"]:
        owner = Choice(choice.rule, choice.compressor, _instance({"scheme": {"memory": table["scheme"]["owner_memory"]}}, {}, "memory"))
    return [Shard(len(hosts), own, make(choice), make(owner), name not in VOTES)]


def _made(table: Table, items: Sequence[Item], hosts: Sequence[int], seed: int) -> list[Method]:
    groups: dict[int, tuple[Choice, list[Item]]] = {}
    for item in items:
        choice = choose(table, item)
        groups.setdefault(choice.rule, (choice, []))[1].append(item)
    route = table.get("scheme", {}).get("route", "flat")
    if route not in ("hierarchical", "shard"):
        return [m for choice, group in groups.values() for m in _methods(table, choice, group, len(hosts), seed)]
    owned = parts(items, lambda item: _alignment(choose(table, item), item), owners_on(route, hosts))
    return [
        method
        for choice, group in groups.values()
        for method in _routed(table, choice, [part for part in owned if part.gradient in group], hosts, seed)
    ]


def _merged(table: Table, changes: Table) -> dict[str, Any]:
    """The table with the values of `changes`, level by level."""
    result = dict(table)
    for key, value in changes.items():
        result[key] = _merged(result.get(key, {}), value) if isinstance(value, dict) else value
    return result


def _stages(table: Table, items: Sequence[Item], hosts: Sequence[int], seed: int) -> list[Stage]:
    """The stages: one from step 0 on, and one from every later switch on."""
    tables = {0: {key: value for key, value in table.items() if key != "switch"}}
    for switch in table["switch"]:
        before = max(at_step for at_step in tables if at_step <= switch["at_step"])
        tables[switch["at_step"]] = _merged(tables[before], switch["set"])
    return [
        Stage(
            at_step,
            lambda now=now: _made(now, items, hosts, seed),
            {item.name: choose(now, item).memory["plugin"] for item in items},
        )
        for at_step, now in tables.items()
    ]


def make_scheme(
    table: Table, items: Sequence[Item], ranks: int, seed: int = 1, hosts: Sequence[int] | None = None
) -> Scheme:
    """The simulation of a parsed scheme file for these gradients. hosts[r] is the host of rank r. Default: one host."""
    where = [0] * ranks if hosts is None else hosts
    if "switch" in table:
        scheme: Scheme = SwitchingScheme(_stages(table, items, where, seed))
    else:
        scheme = Scheme(_made(table, items, where, seed))
    return OneStepLate(scheme) if table.get("scheme", {}).get("apply") == "previous" else scheme
