"""Whole steps of every method that works on a CUDA device, and on the CPU, with equal gradients.
The results have equal bits, or are close if a method forms sums.

    mpirun -np 2 python methods_on_device.py [--steps 6] [--device cuda] [--nccl] [--route flat]
                                             [--dtype float32]

With --nccl payloads go from device to device, if the method allows it. Gradients of 16 bits are
widened on the device, and results rounded once.

Prints a line for each method and ends with 1 if results differ, or if a gradient was not
device-resident. If there is no device, or the runtime does not take gradients there, it says
"skipped" and why. The plugins must be built with CUDA (tools/gpu-check does that).
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from train_on_device import is_first_rank, why_not

# Variables in which launchers give the number of ranks on this host.
LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE")
# Vectors as pairs, because uncompressed gradients would be staged.
VECTORS_AS_PAIRS = """
[[rule]]
match = { dims = { max = 1 } }
compressor = "topk"
"""
# Of compressors: options, and how far a result may be from the CPU's in the first step, in parts of
# the largest. 0: equal bits, in every step. Sums of float32 and of float64 that are rounded to
# float32 have another order on a device.
METHODS: dict[str, tuple[str, float]] = {
    "topk": ("density = 0.05", 0),
    "dgc": ("density = 0.05\nresample = false", 0),
    "adtopk": ('mode = "threshold"\nwarm_up_steps = 2', 0),
    "redsync": ("density = 0.05\nquantised = true", 1e-6),
    "covap": ("interval = 3", 0),
    "fp16": ("", 0),
    "bf16": ("", 0),
    "powersgd": (f"rank = 4{VECTORS_AS_PAIRS}", 1e-4),
    "acpsgd": (f"rank = 4{VECTORS_AS_PAIRS}", 1e-4),
    "powersgd-alternating": (f"rank = 4{VECTORS_AS_PAIRS}", 1e-4),
    "signsgd": ("", 0),
    "signum": ("", 0),
    "efsign": ("", 1e-6),
    "onebit": ("bucket = 1024", 1e-6),
    "qsgd": ('norm = "max"', 0),
    "natural": ("", 0),
    "terngrad": ("clip = 0.0", 0),
    "int8": ("", 0),
    "maxmin": ("", 0),
    "tbq": ("threshold = 0.5", 0),
}
MEMORIES = ("residual", "none")
# Methods whose payloads go from device to device over NCCL. NCCL adds 16-bit values in its own
# order.
OVER_NCCL: dict[str, tuple[str, float]] = {
    "none": ("", 1e-6),
    "topk": ("density = 0.05", 0),
    "fp16": ("", 1e-3),
    "bf16": ("", 1e-2),
    "powersgd": ("rank = 4", 1e-4),
    "acpsgd": ("rank = 4", 1e-4),
}
# The additional allowed distance if results are rounded to this type.
ROUNDING = {"float32": 0.0, "float16": 2**-10, "bfloat16": 2**-7}
# Small gradients share a bucket. One gradient is larger than any tile of a kernel.
SHAPES = ((64, 3, 7, 7), (64,), (256, 64), (1000, 512), (1000,), (31,), ())


def scheme_of(compressor: str, memory: str, options: str, route: str) -> str:
    return (
        f'[scheme]\ncompressor = "{compressor}"\nmemory = "{memory}"\nscheduler = "fusion"\n'
        f'route = "{route}"\n'
        f"[compressor.{compressor}]\n{options}\n"
    )


def gradients(step: int, rank: int, dtype: Any) -> list[Any]:
    """Heavy-tailed, with some zeros."""
    import torch

    generator = torch.Generator().manual_seed(1000 * step + rank)
    values = []
    for shape in SHAPES:
        value = torch.randn(shape, generator=generator)
        value *= torch.exp(torch.randn(shape, generator=generator))
        value[torch.rand(shape, generator=generator) < 0.1] = 0
        values.append(value.to(dtype))
    return values


def results(
    scheme: str, device: Any, dtype: Any, steps: int, directly: bool
) -> tuple[list[list[Any]], dict[str, str]]:
    """The results of every step, and by name the reasons why gradients were staged or not sent
    directly."""
    import torch

    import penstock.torch as hvd

    parameters = [
        torch.nn.Parameter(torch.zeros(shape, device=device, dtype=dtype)) for shape in SHAPES
    ]
    named = [(f"parameter {number}", one) for number, one in enumerate(parameters)]
    optimizer: Any = hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=0.1), named, scheme=scheme
    )
    found = []
    for step in range(steps):
        optimizer.zero_grad()
        handed = [one.to(device) for one in gradients(step, hvd.rank(), dtype)]
        # The derivative of p * g is g, to the bit.
        torch.stack([(p * g).sum() for p, g in zip(parameters, handed)]).sum().backward()
        optimizer.synchronize()
        found.append([p.grad.detach().clone() for p in parameters])
        with optimizer.skip_synchronize():
            optimizer.step()
    report = optimizer.report()
    staged = {
        item["gradient"]: item["why_staged"] or "not sent from device to device"
        for bucket in report["buckets"]
        for item in bucket["items"]
        if item["why_staged"] or (directly and not item["from_device_to_device"])
    }
    optimizer.close()
    return [[one.cpu() for one in step] for step in found], staged


def apart(found: list[list[Any]], expected: list[list[Any]], tolerance: float) -> str:
    """The first difference above the tolerance, or an empty text."""
    import torch

    if tolerance == 0:
        for step, (mine, theirs) in enumerate(zip(found, expected)):
            for number, (a, b) in enumerate(zip(mine, theirs)):
                bits = torch.int32 if a.element_size() == 4 else torch.int16
                if not torch.equal(a.view(-1).view(bits), b.view(-1).view(bits)):
                    return f"gradient {number} has other bits in step {step}"
        return ""
    for number, (a, b) in enumerate(zip(found[0], expected[0])):
        largest = float(b.abs().max()) if b.numel() else 0.0
        if not bool(torch.isfinite(a).all()) or float((a - b).abs().max()) > tolerance * largest:
            return f"gradient {number} is off by more than {tolerance:g} of {largest:g}"
    return ""


def compare(
    methods: dict[str, tuple[str, float]], route: str, device: Any, type_name: str, steps: int
) -> bool:
    """Runs these methods. True if all agree."""
    import torch

    import penstock.torch as hvd

    dtype = getattr(torch, type_name)
    agree = True
    for compressor, (settings, tolerance) in methods.items():
        if tolerance != 0:
            tolerance = max(tolerance, ROUNDING[type_name])
        for memory in MEMORIES:
            scheme = scheme_of(compressor, memory, settings, route)
            expected, _ = results(scheme, "cpu", dtype, steps, False)
            found, staged = results(scheme, device, dtype, steps, methods is OVER_NCCL)
            wrong = apart(found, expected, tolerance)
            if staged and str(device) != "cpu":
                wrong = f"staged: {next(iter(staged.items()))}"
            wrong = "; ".join(filter(None, hvd.allgather_object(wrong)))
            agree &= not wrong
            if hvd.rank() == 0:
                how = "the bits of the CPU" if tolerance == 0 else f"within {tolerance:g} of the CPU"
                print(f"{compressor}, memory {memory}: {wrong or how}", flush=True)
    return agree


def why_not_over_nccl(device: str) -> str:
    import torch

    if device == "cpu":
        return "NCCL moves memory of CUDA devices"
    ranks = max(int(os.environ.get(name, "1")) for name in LOCAL_RANKS)
    if torch.cuda.device_count() < ranks:
        return f"{torch.cuda.device_count()} device(s) for {ranks} ranks, and NCCL wants one for each"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--nccl", action="store_true", help="send from device to device")
    parser.add_argument("--route", choices=("flat", "hierarchical"), default="flat")
    parser.add_argument("--dtype", choices=tuple(ROUNDING), default="float32")
    options = parser.parse_args()
    reason = why_not(options.device) or (options.nccl and why_not_over_nccl(options.device))
    if reason:
        if is_first_rank():
            print(f"skipped: {reason}")
        return 0
    import torch

    import penstock.torch as hvd

    # The run decides which ranks the transport for devices connects.
    run = f'[scheme]\nroute = "{options.route}"\n'
    hvd.init(config_text=run + ('[transport]\ndevice = "nccl"\n' if options.nccl else ""))
    device: Any = "cpu"
    if options.device == "cuda":
        device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
        torch.cuda.set_device(device)
    methods = OVER_NCCL if options.nccl else METHODS
    agree = compare(methods, options.route, device, options.dtype, options.steps)
    hvd.shutdown()
    return 0 if agree else 1


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
