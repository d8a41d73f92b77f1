"""Shared by the scripts that test one thing on a CUDA device: where they run, and why they are
skipped."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, Callable

from train_on_device import is_first_rank, why_not


class Skipped(Exception):
    """The reason why the test cannot run on this device."""


def say(words: str) -> None:
    if is_first_rank():
        print(words, flush=True)


def settle(device: Any) -> None:
    """Waits until the device has completed all work."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def run(about: str | None, attempt: Callable[[Any], bool], config: str = "") -> int:
    """Makes the world and the device (--device cuda or cpu), runs `attempt` there and returns
    the status: 1 if `attempt` was not right. If there is no device, it prints "skipped" and
    the reason."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    reason = why_not(options.device)
    if reason:
        say(f"skipped: {reason}")
        return 0
    import torch

    import penstock.torch as hvd

    hvd.init(config_text=config)
    device = torch.device("cpu")
    if options.device == "cuda":
        device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
        torch.cuda.set_device(device)
    try:
        right = attempt(device)
    except Skipped as why:
        say(f"skipped: {why}")
        right = True
    hvd.shutdown()
    return 0 if right else 1


def main_of(about: str | None, attempt: Callable[[Any], bool], config: str = "") -> None:
    sys.exit(run(about, attempt, config))
