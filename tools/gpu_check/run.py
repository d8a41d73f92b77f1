"""One run: the facts of the machine, the programs, the parts, and the files that are kept after every part."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benches.cuda import figures
from gpu_check import build
from gpu_check.machine import Machine
from gpu_check.parts import Part, Setting
from gpu_check.processes import CUT, FAILED, NOT_REACHED, WELL, Ended, run_all

SKIPPED, BEFORE = "skipped", "ended well before"
BUILD_IN_PART, LEAST_BUILD_S = 0.4, 30.0  # of the time there is, and in seconds
FINDINGS = re.compile(r"=====.*(Invalid|Misaligned|Race|hazard| at |Error)|failed: |Error|error")


def write(path: Path, text: str) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}")
    beside.write_text(text)
    beside.replace(path)


def text_of(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""


def reason_to_skip(text: str) -> str:
    """For people or in JSON; empty where it was not skipped."""
    found = re.search(r'^(?:-- )?skipped: (.*)|^\{"skipped": "(.*)"\}', text, re.MULTILINE)
    return (found.group(1) or found.group(2)) if found else ""


def last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join([line for line in lines if FINDINGS.search(line)][:3] or lines[-2:])[:400]


class Run:
    def __init__(self, repository: Path, work: Path, out: Path, begin: float, until: float, is_short: bool) -> None:
        self.repository, self.work, self.out = repository, work, out
        self.begin, self.until, self.is_short = begin, until, is_short
        self.found = work / "found"
        self.machine = Machine(repository)
        self.setting: Setting | None = None
        self.current: Part | None = None
        self.lines: list[str] = []
        self.states: dict[str, str] = {}
        self.failed = False

    def say(self, line: str) -> None:
        self.lines.append(line)
        try:
            print(f"[gpu-check {time.monotonic() - self.begin:4.0f} s] {line}", flush=True)
        except OSError:
            pass  # nobody listens any more, and there is still something to keep

    # ---- before parts ----

    def prepare(self, anew: bool, again: bool) -> None:
        self.work.mkdir(parents=True, exist_ok=True)
        self.machine.look()
        for line in self.machine.lines:
            self.say(line)
        programs = self.programs(anew)
        runtime = self.work / "runtime"
        why_no_runtime = build.lay_out_runtime(runtime, self.repository, programs)
        folders = [runtime, self.repository / "frontends/python", self.repository / "tools/benches"]
        name = build.stamp([programs / one for one in build.PROGRAMS], folders)
        name += f" {self.machine.devices} {'short' if self.is_short else 'long'}"
        kept = json.loads(text_of(self.found / "state.json") or "{}")
        if again or kept.get("of") != name:
            shutil.rmtree(self.found, ignore_errors=True)
            kept = {"of": name, "parts": {}}
        self.of, self.states = name, kept["parts"]
        write(self.found / "machine.json", json.dumps(self.machine.facts(), indent=1))
        # Last: from here on `keep` writes the states, and a signal may come at any line.
        self.setting = Setting(self.repository, self.work, self.found, programs, self.machine, self.is_short, why_no_runtime)

    def programs(self, anew: bool) -> Path:
        """The folder of the programs: prebuilt programs if they can be used, else programs built here."""
        came = self.work / "came"
        why_not_those = build.why_not_prebuilt(self.repository / build.PREBUILT, came, self.machine)
        why = "--build" if anew else why_not_those
        if not why:
            self.say("programs: those that came along")
            return came
        capability = self.machine.capability()
        built = self.work / "built"
        built.mkdir(exist_ok=True)
        begin = time.monotonic()
        until = min(self.until, begin + max(LEAST_BUILD_S, BUILD_IN_PART * (self.until - begin))) if self.is_short else self.until
        wrong = build.compile_all(built, self.repository, self.machine, "".join(map(str, capability)) if capability else "", until)
        self.say(f"programs: built here, {time.monotonic() - begin:.0f} s ({why})" if not wrong else f"programs: not built: {wrong}")
        if wrong and self.machine.nvcc:
            self.failed = True
            self.say(f"programs: those that came along, then{': not used, ' if why_not_those else ''}{why_not_those}")
            if not why_not_those:
                return came
        return built

    # ---- parts ----

    def parts(self, chosen: Sequence[Part], anew: bool) -> None:
        """Runs the parts that have not ended well in an earlier call. Parts that failed or were cut come last."""
        for part in sorted(chosen, key=lambda one: self.states.get(one.name) in (FAILED, CUT)):
            if self.states.get(part.name) == WELL and not anew:
                self.say(f"{part.name}: {BEFORE} (--again runs it)")
                continue
            self.current = part
            self.part(part)
            self.current = None
            self.keep()

    def part(self, part: Part) -> None:
        assert self.setting is not None
        begin = time.monotonic()
        for old in (self.found / f"{part.name}.txt", self.found / f"{part.name}.json"):
            old.unlink(missing_ok=True)
        shutil.rmtree(self.found / part.name, ignore_errors=True)
        why = part.why_not(self.setting)
        jobs = [] if why else part.jobs(self.setting, part.name)
        missing = next((job.command[0] for job in jobs if not shutil.which(job.command[0])), "")
        if missing and not self.machine.nvcc:
            why = f"no CUDA compiler (nvcc), and there is no {Path(missing).name}"
        elif missing:
            write(self.found / f"{part.name}.txt", f"failed: {Path(missing).name} was not built\n")
            self.end(part, FAILED, f"{Path(missing).name} was not built", begin)
            return
        if why:
            write(self.found / f"{part.name}.txt", f"skipped: {why}\n")
            self.end(part, SKIPPED, why, begin)
            return
        results: list[Ended] = []
        several = len(jobs) > 1
        text = self.found / f"{part.name}.txt"

        def tell(ended: Ended) -> None:
            results.append(ended)
            if several:
                write(text, "".join(f"{line_of(part, one)}\n" for one in results))

        run_all(jobs, part.at_once, self.until, tell)
        self.end(part, *(of_several(part, results, text) if several else of_one(results[0], text)), begin)

    def end(self, part: Part, how: str, words: str, begin: float) -> None:
        if how == SKIPPED and self.machine.devices and "no CUDA device" in words:
            how = FAILED  # for the driver names one
        self.states[part.name] = how
        if how == NOT_REACHED:
            del self.states[part.name]
        self.failed = self.failed or how in (FAILED, CUT)
        self.say(f"{part.name}: {how}, {time.monotonic() - begin:.0f} s{'. ' if words else ''}{words}")

    # ---- files that are kept ----

    def keep(self) -> dict[str, Any]:
        if self.setting is not None:
            write(self.found / "state.json", json.dumps({"of": self.of, "parts": self.states}, indent=1))
        self.found.mkdir(parents=True, exist_ok=True)
        self.out.mkdir(parents=True, exist_ok=True)
        found = figures.gathered(self.found)
        write(self.out / "figures.json", json.dumps(found, indent=2) + "\n")
        write(self.out / "figures.md", figures.markdown(found))
        write(self.out / "summary.txt", "".join(f"{line}\n" for line in self.lines))
        beside = self.out / ".found.tgz"
        with tarfile.open(beside, "w:gz", compresslevel=1) as tar:
            tar.add(self.found, "found")
            for log in sorted((self.work / "built").glob("*.log")):
                tar.add(log, f"found/{log.name}")
        beside.replace(self.out / "found.tgz")
        return found

    def finish(self) -> None:
        """Ends the run at any point and keeps its results."""
        try:
            if self.current is not None:
                with (self.found / f"{self.current.name}.txt").open("a") as text:
                    text.write("failed: stopped\n")
                self.states[self.current.name] = CUT
            found = self.keep()
            failed = [name for name, how in self.states.items() if how in (FAILED, CUT)]
            for line in [*(f"goal: {line}" for line in figures.lines_of_goals(found)), f"failed or cut: {', '.join(failed) or 'none'}"]:
                self.say(line)
            self.say(f"figures: {self.out / 'figures.json'}, as a table in figures.md; what parts said: found.tgz")
            write(self.out / "summary.txt", "".join(f"{line}\n" for line in self.lines))
        except Exception as error:  # noqa: BLE001
            print(f"gpu-check: not all could be kept in {self.out}: {error!r}", file=sys.stderr)
            self.failed = True


def of_one(ended: Ended, text: Path) -> tuple[str, str]:
    """The end of a part of one program, and a text about it."""
    if ended.how == NOT_REACHED:
        return NOT_REACHED, ""
    said = text_of(ended.job.output)
    if ended.how == WELL:
        why = reason_to_skip(said)
        return (SKIPPED, why) if why else (WELL, "")
    words = last_words(text_of(text) if ended.job.errors else said)
    how = f"cut after {ended.seconds:.0f} s" if ended.how == CUT else f"status {ended.status}"
    with text.open("a") as more:
        more.write(f"failed: {how}\n")
    return ended.how, f"{how}: {words}"


def line_of(part: Part, ended: Ended) -> str:
    """The line about one program of a part with several programs."""
    name, said = ended.job.name, text_of(ended.job.output)
    if ended.how == WELL:
        why = reason_to_skip(said)
        return f"skipped: {why}" if why else f"{name}: {'no errors' if part.may_be_cut else 'as on the CPU'}"
    if ended.how == NOT_REACHED or (ended.how == CUT and part.may_be_cut):
        return f"{name}: left out for want of time"
    return f"failed: {name}: {'cut' if ended.how == CUT else f'status {ended.status}'}: {last_words(said)}"


def of_several(part: Part, results: list[Ended], text: Path) -> tuple[str, str]:
    lines = [line_of(part, one) for one in results]
    failed = [line.removeprefix("failed: ") for line in lines if line.startswith("failed: ")]
    late = [line for line in lines if line.endswith("left out for want of time")]
    if len(late) == len(lines):
        return NOT_REACHED, ""
    if failed:
        with text.open("a") as more:
            more.write(f"failed: {len(failed)} of {len(lines)}\n")
        return FAILED, f"{len(failed)} of {len(lines)}: {'; '.join(failed)}"
    skipped = [line for line in lines if line.startswith("skipped: ")]
    if skipped:
        return SKIPPED, skipped[0].removeprefix("skipped: ")
    done = f"{len(lines) - len(late)} of {len(lines)}"
    if late:
        return (WELL if part.may_be_cut else CUT), f"{done}, the others left out for want of time"
    return WELL, done
