"""The parts of gpu-check, the most valuable first, in case time is short. A further part is an entry of PARTS."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpu_check.build import BENCH, CHECK, DEVICE_CHECK, DOOR, NCCL_CHECK, TABLE, TESTS_OWN
from gpu_check.machine import Machine, find
from gpu_check.processes import Job

SCRIPTS = "frontends/python/tests/scripts"
BENCHES = "tools/benches/cuda"
AT_ONCE = 6  # checks that share the device
# The parts of the check of the kernels; the kernels that are used most come first.
CHECKS = (
    "selection", "sums", "low-rank", "signs", "stochastic", "pairs", "many together", "thresholds", "codes", "values", "rows", "factors",
    "orthogonalise", "one sign", "masking", "clipping", "steered", "dense", "refusals",
)  # fmt: skip


@dataclass
class Setting:
    """The folders, programs and machine of a run of parts."""

    repository: Path
    work: Path
    found: Path
    programs: Path
    machine: Machine
    is_short: bool  # the whole run has a time limit
    why_no_runtime: str = ""

    def program(self, name: str) -> str:
        return str(self.programs / name)

    def ranks(self, count: int, script: str, *arguments: str) -> list[str]:
        """The command that runs a script on `count` ranks, over torch's gloo, so that no MPI is needed. It uses addresses of this
        machine, because the machine may not know its own name."""
        launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(count)]
        return [self.machine.python, *launcher, str(self.repository / SCRIPTS / "over_gloo.py"), str(self.repository / script), *arguments]

    def environment(self) -> dict[str, str]:
        """The environment of ranks. PENSTOCK_PORT is a port that the system gives to no connection by itself; the port after
        torch's might be such a port."""
        runtime = self.work / "runtime"
        before = os.environ.get("LD_LIBRARY_PATH")
        return {
            "GLOO_SOCKET_IFNAME": "lo", "PENSTOCK_PORT": str(20000 + random.randrange(10000)), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1", "PENSTOCK_LIBRARY": str(runtime / "libpenstock.so.0"),
            "PYTHONPATH": str(self.repository / "frontends/python"), "LD_LIBRARY_PATH": f"{runtime}:{before}" if before else str(runtime),
        }  # fmt: skip


DOUBLED = f"kernels/plugins/{TESTS_OWN}"
Jobs = Callable[[Setting, str], list[Job]]


@dataclass(frozen=True)
class Part:
    name: str
    what: str
    jobs: Jobs  # makes the jobs, under the part's name
    why_not: Callable[[Setting], str]  # empty if the part can run
    at_once: int = 1
    may_be_cut: bool = False  # a part without time to end has not failed


def nothing_missing(_: Setting) -> str:
    return ""


def a_device(setting: Setting) -> str:
    """The reason why ranks cannot run on devices, or an empty text."""
    return setting.machine.why_no_device() or setting.why_no_runtime


def two_devices(setting: Setting) -> str:
    count = len(setting.machine.torch.get("devices", []))
    return a_device(setting) or ("" if count > 1 else f"{count} device(s) for 2 ranks, and NCCL wants one for each")


def accelerate(setting: Setting) -> str:
    return a_device(setting) or ("" if setting.machine.torch.get("accelerate") else f"{setting.machine.python} does not import accelerate")


def sanitizer(setting: Setting) -> str:
    if not setting.machine.sanitizer:
        return "compute-sanitizer is neither on the search path nor beside nvcc"
    return "" if setting.machine.devices or setting.machine.torch.get("available") else "no CUDA device (neither nvidia-smi nor torch names one)"


def code_to_look_at(setting: Setting) -> str:
    plugin = setting.programs / DOUBLED
    if not plugin.is_file():
        return f"there is no {plugin.name}"
    return "" if find("cmake") else "cmake is not installed"


def program(cap_s: int, *names: str) -> Jobs:
    """Runs a built program. Its arguments are other built programs."""

    def jobs(setting: Setting, name: str) -> list[Job]:
        return [Job(name, [setting.program(one) for one in names], cap_s, setting.found / f"{name}.txt")]

    return jobs


def nccl(setting: Setting, name: str) -> list[Job]:
    command = [setting.program(NCCL_CHECK), setting.program("kernels/plugins/collective-nccl.so"), setting.machine.nccl()]
    return [Job(name, [word for word in command if word], 60, setting.found / f"{name}.txt")]


def fuses(setting: Setting, name: str) -> list[Job]:
    cuobjdump = find("cuobjdump", Path(setting.machine.nvcc).parent if setting.machine.nvcc else Path("/usr/local/cuda/bin"))
    source = str(setting.repository / "tests/cuda/fuses_nothing.cmake")
    command = ["cmake", f"-DCUOBJDUMP={cuobjdump}", f"-DPLUGIN={setting.program(DOUBLED)}", "-P", source]
    return [Job(name, command, 60, setting.found / f"{name}.txt")]


def figures(cap_s: int, make: Callable[[Setting], list[str]]) -> Jobs:
    """Runs a program whose last line of output is JSON. Its other output goes to a log."""

    def jobs(setting: Setting, name: str) -> list[Job]:
        return [Job(name, make(setting), cap_s, setting.found / f"{name}.json", setting.found / f"{name}.log", setting.environment())]

    return jobs


def rounds(setting: Setting) -> str:
    return "5" if setting.is_short else "9"


def bench(setting: Setting) -> list[str]:
    return [setting.program(BENCH), "--json", "--rounds", rounds(setting), "--table", setting.program(TABLE)]


def torch_topk(setting: Setting) -> list[str]:
    path = str(setting.repository / BENCHES / "torch_topk.py")
    return [setting.machine.python, path, setting.program(DOOR), "--json", "--rounds", rounds(setting)]


def script(count: int, cap_s: int, path: str, *words: str, briefly: tuple[str, ...] = (), **environment: str) -> Jobs:
    """Runs a script on ranks. {found} in a word stands for the folder of results. `briefly`: further words if the run has a time limit."""

    def jobs(setting: Setting, name: str) -> list[Job]:
        arguments = [word.format(found=setting.found) for word in (*words, *(briefly if setting.is_short else ()))]
        where = {**setting.environment(), **environment}
        return [Job(name, setting.ranks(count, path, *arguments), cap_s, setting.found / f"{name}.txt", environment=where)]

    return jobs


def steps(count: int) -> Jobs:
    output = f"{{found}}/steps_{count}.json"
    return script(count, 150, f"{BENCHES}/step_on_device.py", "--output", output, briefly=("--models", "resnet50", "--rounds", "5"))


def checks(cap_s: int, *before: str) -> Jobs:
    """The check of the kernels, a process for each part, so that a failed part spoils no other part."""

    def jobs(setting: Setting, name: str) -> list[Job]:
        short = ["--short"] if setting.is_short or before else []
        words = [setting.machine.sanitizer if word == "SANITIZER" else word for word in before]
        folder = setting.found / name
        return [Job(one, [*words, setting.program(CHECK), *short, one], cap_s, folder / f"{one.replace(' ', '-')}.txt") for one in CHECKS]

    return jobs


METHODS, BRIEFLY = f"{SCRIPTS}/methods_on_device.py", ("--steps", "3")
OVER_NCCL = script(1, 120, METHODS, "--nccl", briefly=BRIEFLY)
IN_HOSTS = script(2, 300, METHODS, "--nccl", "--route", "hierarchical", briefly=BRIEFLY)
FIRST = f"{SCRIPTS}/first_step_on_device.py"
SMALL = script(1, 60, f"{BENCHES}/small_step.py", "--output", "{found}/small_step.json")
# The check causes some errors of the API on purpose.
MEMCHECK = ("SANITIZER", "--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "9")
RACECHECK = ("SANITIZER", "--tool", "racecheck", "--error-exitcode", "9")

PARTS: tuple[Part, ...] = (
    Part("device", "the device's table: properties, copies, streams, events", program(60, DEVICE_CHECK, TABLE), nothing_missing),
    Part("check", "the kernels, with the same bits as the CPU's; a process for each kind", checks(420), nothing_missing, AT_ONCE),
    Part("nccl", "the nccl transport with one rank, over torch's own NCCL where there is one", nccl, nothing_missing),
    Part("fuses", "the code of a plugin with kernels of its own", fuses, code_to_look_at),
    Part("methods", "whole steps of every method that works on a device, two ranks", script(2, 300, METHODS, briefly=BRIEFLY), a_device),
    Part("training", "a model trained on the device and on the CPU, two ranks", script(2, 120, f"{SCRIPTS}/train_on_device.py"), a_device),
    Part("captured", "a CUDA graph captured while a deferred exchange runs, two ranks", script(2, 60, f"{SCRIPTS}/captured_on_device.py"), a_device),
    Part("kernels", "times of kernels, against a copy, a read and CUB", figures(300, bench), nothing_missing),
    Part("small_step", "what a step of one small gradient takes longer than none", SMALL, a_device),
    Part("steps_1", "steps of ResNet-50's and GPT-2's gradients, one rank", steps(1), a_device),
    Part("methods_over_nccl_1", "methods over NCCL, one rank", OVER_NCCL, a_device),
    Part("compiled", 'steps under torch.compile(mode="reduce-overhead")', script(1, 150, f"{SCRIPTS}/compiled_on_device.py"), a_device),
    Part("fsdp", "FSDP2, two ranks on one device", script(2, 60, f"{SCRIPTS}/fsdp_on_device.py"), a_device),
    Part("far_apart", "ranks that train apart, two on one device", script(2, 60, f"{SCRIPTS}/far_apart_on_device.py"), a_device),
    Part("accelerate", "Accelerate on one device", script(1, 60, f"{SCRIPTS}/accelerate_on_device.py"), accelerate),
    Part("first_step_lazy", "the first step, kernels loaded when first used", script(1, 60, FIRST, CUDA_MODULE_LOADING="LAZY"), a_device),
    Part("first_step_eager", "the same, all kernels loaded before", script(1, 60, FIRST, CUDA_MODULE_LOADING="EAGER"), a_device),
    Part("torch_topk", "top-k against torch.topk", figures(120, torch_topk), lambda setting: setting.machine.why_no_device()),
    Part("steps_2", "the same with two ranks that share a device; DDP over NCCL where there are two", steps(2), a_device),
    Part("methods_of_bfloat16", "gradients in bfloat16", script(2, 300, METHODS, "--dtype", "bfloat16", briefly=BRIEFLY), a_device),
    Part("methods_over_nccl_2", "methods over NCCL, two ranks", script(2, 300, METHODS, "--nccl", briefly=BRIEFLY), two_devices),
    Part("methods_in_hosts", "methods on route hierarchical, two ranks", IN_HOSTS, two_devices),
    Part("memcheck", "the kernels' check under compute-sanitizer, as far as time allows", checks(300, *MEMCHECK), sanitizer, AT_ONCE, True),
    Part("racecheck", "the same for races in shared memory", checks(300, *RACECHECK), sanitizer, AT_ONCE, True),
)
NAMES = tuple(part.name for part in PARTS)
