"""tools/bench schedulers: schedulers against each other, on four hosts and the gradients of ResNet-50.

Four network namespaces of this machine (needs root) run one rank each. The gradients become ready at the times of a real
backward (resnet50_backward.csv), during which the process sleeps. Every scheduler has a set of its own in these processes,
and the sets take turns, step by step. A step lasts from the start of backward to the end of the wait, on the slowest rank.
The exposed part is the part after the slowest backward. The figure of a scheduler in a round is the median of its steps;
ratios are formed within a round; +- is two standard errors of their median. encode, exchange and decode are times of rank 0
in ms, summed over buckets, so they overlap with each other and with backward. "plans" counts new plans, in warm-up and in
timed steps. "predicted" is the step that `penstock plan` computes from these gradients, link and schemes, without a run.

With --forward-ms each step has a forward too, in which the process sleeps layer by layer, and steps follow each other. If a
scheduler defers messages to the next forward (dear), each layer waits there for its gradient. A turn is then one step that
is not timed and --steps timed steps, and its figure is their mean. The clock runs from the moment at which a forward may
begin after the first step to the same moment after the last, so that every timed step has one wait for deferred messages
(tools/benches/contest/contestant_bench.hpp).

Choose --backward-ms and --link so that bytes take nearly as long as backward (200 ms and 300mbit for top-k 1 %). If they
take much less, every schedule hides them; if they take much more, every schedule that begins early fills the link.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hosts import Hosts, link_rate, rate_words
from hosts.hosts import HOSTFILE

from benches import resnet50_backward

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / "build/release"
PLUGINS = BUILD / "lib/penstock/plugins"
RANKS = 4
REFERENCE = "wfbp"  # where it takes part, else the first
SCHEMES = {
    "topk": '[scheme]\ncompressor = "topk"\nmemory = "residual"\ncollective = "mpi"\nscheduler = "{scheduler}"\n\n[compressor.topk]\ndensity = 0.01\n',
    "dense": '[scheme]\ncompressor = "none"\nmemory = "none"\ncollective = "mpi"\nscheduler = "{scheduler}"\n',
}
SCHEDULERS = {
    "topk": ("wfbp", "fusion", "fgbuff", "syncea", "omgs", "rgmerge", "optimal"),
    "dense": ("wfbp", "fusion", "mgwfbp", "syncea", "optimal", "dear"),
}


@dataclass(frozen=True)
class Length:
    """Steps before the first round, rounds, and steps of each contestant in a round."""

    warm_up: int
    rounds: int
    steps: int


def default_length(kind: str, bits_per_s: float) -> Length:
    """Short enough for a default run of about a quarter of an hour, of which dense at 100 Mb/s, at 12 s a step, takes most.

    Schedulers that measure plan after 5 steps and look at that plan after 10, so that no warm-up is shorter than 12.
    """
    fast = bits_per_s >= 5e8
    if kind == "topk":
        return Length(30, 7, 5) if fast else Length(20, 7, 2)
    return Length(12, 3, 2) if fast else Length(12, 3, 1)


def plugin(contestant: str) -> Path:
    return PLUGINS / f"scheduler-{contestant.split(':')[0]}.so"


def scheme(kind: str, contestant: str) -> str:
    """TOML of a contestant: a scheduler, with options after colons as in dear:threshold_bytes=1048576.
    ValueError if an option has no value."""
    name, *options = contestant.split(":")
    if any(not all(option.partition("=")) for option in options):
        raise ValueError(f"{contestant!r} is no scheduler, expected a name, or NAME:OPTION=VALUE like dear:threshold_bytes=1048576")
    table = [f"\n[scheduler.{name}]", *options, ""] if options else []
    return SCHEMES[kind].format(scheduler=name) + "\n".join(table)


def gradients_file(words: str, folder: Path) -> Path:
    """The file of that name. For COUNTxELEMENTS: a new file in `folder`, with equal gradients that become ready at equal distances."""
    equal = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", words)
    if not equal:
        return Path(words)
    count, elements = map(int, equal.groups())
    file = folder / f"{words}.csv"
    file.write_text("".join(f"{i},{elements},{1 - i / count:.6f}\n" for i in range(count)))
    return file


def contestants(kind: str, schedulers: Sequence[str]) -> list[dict[str, Any]]:
    """The entry of each contestant in the file for the program."""
    return [{"name": name, "scheme": scheme(kind, name), "dense": kind == "dense"} for name in schedulers]


def per_round(rounds: Sequence[Sequence[float]]) -> list[float]:
    """A figure per round: the median of its steps."""
    return [statistics.median(steps) for steps in rounds]


def ratios(rounds: Sequence[Sequence[float]], reference: Sequence[Sequence[float]]) -> list[float]:
    """A ratio per round, against the reference in that round. ValueError if the numbers of rounds differ."""
    return [mine / its for mine, its in zip(per_round(rounds), per_round(reference), strict=True)]


def spread(values: Sequence[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def half_spread(values: Sequence[float]) -> float:
    """Two standard errors of the median, as a share of the median; 0 for one value."""
    if len(values) < 2:
        return 0.0
    return 2 * 1.25 * statistics.stdev(values) / len(values) ** 0.5 / statistics.median(values)


def floor_ms(moved_bytes: float, bits_per_s: float) -> float:
    """The least time of a rank's bytes on its link."""
    return moved_bytes * 8 / bits_per_s * 1e3


def table(result: dict[str, Any], reference: str) -> list[tuple[str, ...]]:
    """A heading and a row per scheduler. Ratios are against the scheduler `reference`."""
    rows: list[tuple[str, ...]] = [
        ("scheduler", "buckets", "plans", "step ms", "predicted", "exposed ms", "encode", "exchange", "decode", f"step / {reference}", "+-")
    ]
    base = next(one for one in result["contestants"] if one["name"] == reference)
    for one in result["contestants"]:
        ratio = ratios(one["step_ms"], base["step_ms"])
        stages = (f"{statistics.median(per_round(one[stage])):.0f}" for stage in ("encode_ms", "exchange_ms", "decode_ms"))
        rows.append((
            one["name"],
            "+".join(map(str, one["buckets"])),
            f"{one['plans_in_warm_up']}, {one['plans_while_timed']}",
            spread(per_round(one["step_ms"]), 1),
            off(one["predicted_ms"], statistics.median(per_round(one["step_ms"]))),
            spread(per_round(one["exposed_ms"]), 1),
            *stages,
            spread(ratio, 3),
            f"{half_spread(ratio):.1%}",
        ))  # fmt: skip
    return rows


def off(predicted_ms: float, step_ms: float) -> str:
    """The predicted time, and its distance from the measured time."""
    return f"{predicted_ms:.1f} ({predicted_ms / step_ms - 1:+.1%})"


def predicted(kind: str, schedulers: Sequence[str], link: str, options: argparse.Namespace) -> dict[str, float]:
    """The milliseconds of a step by scheduler, computed by `penstock plan`."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.csv"
        model.write_text(resnet50_backward.profile(resnet50_backward.read(options.gradients), options.backward_ms, options.forward_ms))
        words = ["plan", "--model", str(model), "--hosts", str(RANKS), "--link", link, "--json"]
        if options.slow:
            words += ["--straggler", str(options.slow_factor)]
        for name in schedulers:
            file = Path(folder) / f"{name}.toml"
            file.write_text(scheme(kind, name))
            words += ["--scheme", str(file)]
        answer = json.loads(subprocess.run([BUILD / "bin/penstock", *words], check=True, capture_output=True, text=True).stdout)
    return {one["name"]: one["step_ms"] for one in answer["schemes"]}


def print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths)).rstrip())


def launch(hosts: Hosts, entries: list[dict[str, Any]], settings: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """Runs bench_schedulers on all ranks of those hosts. Errors: SystemExit; the ranks have said why on stderr."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "contestants.json"
        file.write_text(json.dumps(entries))
        words = [word for name, value in (settings | {"contestants": file}).items() for word in (f"--{name}", str(value))]
        ranks = hosts.count * hosts.ranks_per_host
        line = ["mpirun", "-np", str(ranks), "--hostfile", HOSTFILE, BUILD / "benches/bench_schedulers", *words]
        environment = {**os.environ, **hosts.environment(), "PENSTOCK_PLUGIN_DIRECTORY": str(PLUGINS)}
        with hosts.start(line, env=environment, stdout=subprocess.PIPE, text=True) as job:  # stderr shows progress
            try:
                out, _ = job.communicate(timeout=timeout_s)
            except BaseException:
                job.kill()
                raise
    figures = [text for text in out.splitlines() if text.startswith("{")]
    if job.returncode != 0 or not figures:
        raise SystemExit(f"bench: the ranks of bench_schedulers ended with status {job.returncode}; what they said is above")
    return json.loads(figures[-1])


def run(hosts: Hosts, kind: str, schedulers: Sequence[str], length: Length, options: argparse.Namespace) -> dict[str, Any]:
    """One comparison on those hosts."""
    settings: dict[str, Any] = {
        "gradients": options.gradients, "backward-ms": options.backward_ms, "forward-ms": options.forward_ms,
        "rounds": length.rounds, "steps": length.steps, "warm-up": length.warm_up,
    }  # fmt: skip
    if options.timeline:
        settings["timeline"] = options.timeline
    if options.slow:
        settings |= {"slow-rank": RANKS - 1, "slow-factor": options.slow_factor}
    return launch(hosts, contestants(kind, schedulers), settings, options.timeout_s)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench schedulers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--link", default="1gbit,100mbit", help="rates of the links, as tc writes them (default %(default)s)")
    parser.add_argument("--only", choices=tuple(SCHEMES), help="one of the two comparisons: top-k 1 %% with residual, or dense")
    parser.add_argument("--schedulers", help="names, the reference first, with options as in dear:threshold_bytes=1048576 (default: those known to make sense for the scheme)")
    parser.add_argument("--slow", action="store_true", help="the last rank's backward takes longer, by --slow-factor")
    parser.add_argument("--slow-factor", type=float, default=1.3)
    parser.add_argument("--backward-ms", type=float, default=200.0, help="length of backward (default %(default)g)")
    parser.add_argument("--forward-ms", type=float, default=0.0, help="length of the forward of each step (default 0: steps without one)")
    parser.add_argument("--rounds", type=int, help="rounds that count (default: by scheme and link)")
    parser.add_argument("--steps", type=int, help="steps of each scheduler in a round (default: by scheme and link)")
    parser.add_argument("--warm-up", type=int, help="steps before the first round, for plans to settle (default: by scheme and link)")
    parser.add_argument("--gradients", default=str(resnet50_backward.CSV), help="a file of name,elements,share per line (default: ResNet-50's), or 1000x4096 for 1000 equal ones of 4096 elements")
    parser.add_argument("--timeout-s", type=float, default=1800.0, help="of each run")
    parser.add_argument("--timeline", type=Path, help="Chrome trace of rank 0 in the rounds; of the last comparison where there are several")
    parser.add_argument("--json", action="store_true", help="figures as JSON instead of tables")
    parser.add_argument("--output", type=Path, help="also write the JSON here")
    options = parser.parse_args(arguments)
    try:
        for name in options.schedulers.split(",") if options.schedulers else ():
            scheme("dense", name)
        options.rates = {words: link_rate(words) for words in options.link.split(",")}
        options.scratch = tempfile.TemporaryDirectory()  # as long as the options live
        options.gradients = gradients_file(options.gradients, Path(options.scratch.name))
        resnet50_backward.read(options.gradients)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    for name, least in (("rounds", 1), ("steps", 1), ("warm_up", 0)):
        value = getattr(options, name)
        if value is not None and value < least:
            parser.error(f"--{name.replace('_', '-')} is {value}, expected {least} or more")
    if options.backward_ms <= 0 or options.slow_factor <= 0 or options.forward_ms < 0:
        parser.error(f"--backward-ms is {options.backward_ms:g}, --slow-factor {options.slow_factor:g} and --forward-ms {options.forward_ms:g}, expected above 0, and --forward-ms from 0")
    return options


def there_are(kind: str, options: argparse.Namespace) -> list[str]:
    """The schedulers that take part; a line says which do not, and why."""
    wanted = options.schedulers.split(",") if options.schedulers else SCHEDULERS[kind]
    for name in wanted:
        if not plugin(name).exists():
            print(f"[bench] {kind}: scheduler {name} is left out, {plugin(name).relative_to(REPOSITORY)} is not built", file=sys.stderr)
    return [name for name in wanted if plugin(name).exists()]


def main(arguments: Sequence[str]) -> int:
    from benches.bench import build

    options = parse(arguments)
    build("bench_schedulers", "penstock_command", "penstock-compressor-topk", "penstock-memory-residual")
    results: dict[str, Any] = {}
    for kind in (options.only,) if options.only else tuple(SCHEMES):
        schedulers = there_are(kind, options)
        if not schedulers:
            raise SystemExit(f"bench: none of the schedulers for {kind} is built; run ninja -C build/release")
        reference = schedulers[0] if options.schedulers or REFERENCE not in schedulers else REFERENCE
        for words, rate in options.rates.items():
            usual = default_length(kind, rate)
            length = Length(*(getattr(options, name) if getattr(options, name) is not None else getattr(usual, name)
                              for name in ("warm_up", "rounds", "steps")))  # fmt: skip
            print(f"[bench] {kind} at {rate_words(words)}: {', '.join(schedulers)}; "
                  f"{length.warm_up} steps to warm up, {length.rounds} rounds of {length.steps}", file=sys.stderr)
            with Hosts(RANKS, words) as hosts:
                result = run(hosts, kind, schedulers, length, options)
            expected = predicted(kind, schedulers, words, options)
            for one in result["contestants"]:
                one["predicted_ms"] = expected[one["name"]]
            result |= {"backward_ms": options.backward_ms, "forward_ms": options.forward_ms, "slow_factor": options.slow_factor if options.slow else 1.0, "reference": reference}
            results[f"{kind} {words}"] = result
            if not options.json:
                floors = [floor_ms(one["moved_bytes_per_step"], rate) for one in result["contestants"]]
                forward = f"forward of {options.forward_ms:g} ms, " if options.forward_ms else ""
                print(f"\n{kind} at {rate_words(words)}, {forward}backward of {options.backward_ms:g} ms; bytes alone take {statistics.median(floors):.0f} ms")
                print_table(table(result, reference))
    if options.json:
        print(json.dumps(results, indent=2))
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(results, indent=2) + "\n")
    return 0
