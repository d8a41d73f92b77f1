"""When each gradient of ResNet-50 is ready in backward: builds the network in plain torch, runs backward on the CPU and
notes by hooks when each parameter's gradient is complete; writes resnet50_backward.csv beside this file.

Run in .venv: python tools/benches/resnet50_backward.py [--batch N] [--size PIXELS] [--rounds N] [--output FILE]

A row of the file is a gradient, in order of registration: name, elements, share. The share is the moment at which the
gradient was ready, as part of the time from the start of backward to its last gradient: the median over rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CSV = Path(__file__).with_name("resnet50_backward.csv")
WARM_UP = 2  # backward passes before those that count
BLOCKS, WIDTHS, EXPANSION = (3, 4, 6, 3), (64, 128, 256, 512), 4


@dataclass(frozen=True)
class Gradient:
    """One row: `share` of backward, in (0, 1], after which the gradient is ready."""

    name: str
    elements: int
    share: float


def read(path: Path = CSV) -> list[Gradient]:
    """The rows of such a file, in order of registration. Errors: ValueError with the line that is wrong."""
    gradients = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line or line.startswith("#") or line == "name,elements,share":
            continue
        try:
            name, elements, share = line.split(",")
            gradient = Gradient(name, int(elements), float(share))
        except ValueError as error:
            raise ValueError(f"{path}:{number} is {line!r}, expected name,elements,share") from error
        if gradient.elements < 1 or not 0 < gradient.share <= 1:
            raise ValueError(f"{path}:{number} is {line!r}, expected elements from 1 and a share above 0, at most 1")
        gradients.append(gradient)
    if not gradients:
        raise ValueError(f"{path} has no gradients; write it with tools/benches/resnet50_backward.py")
    return gradients


def profile(gradients: Sequence[Gradient], backward_ms: float, forward_ms: float = 0.0) -> str:
    """The same gradients as `penstock plan` reads a model: each takes the time between it and the one behind it, which
    backward has earlier, or at the same moment where the file says later, and the same share of forward."""
    shares = [one.share for one in gradients] + [0.0]
    for i in reversed(range(len(gradients))):
        shares[i] = max(shares[i], shares[i + 1])
    rows = [f"{one.name},{one.elements},{share - after:.6f}" for one, share, after in zip(gradients, shares, shares[1:])]
    return "\n".join([f"# forward_ms = {forward_ms:g}", f"# backward_ms = {backward_ms}", "name,shape,work", *rows, ""])


def network():
    """ResNet-50 for 1000 classes (He et al., 2016), the stride in the 3 x 3 convolution; 161 parameters, 25.6 M floats."""
    import torch
    from torch import nn

    class Bottleneck(nn.Module):
        def __init__(self, channels: int, width: int, stride: int, widen: bool) -> None:
            super().__init__()
            out = width * EXPANSION
            self.body = nn.Sequential(
                nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out),
            )  # fmt: skip
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)) if widen else nn.Identity()

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.body(images) + self.shortcut(images))

    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, (count, width) in enumerate(zip(BLOCKS, WIDTHS)):
        for block in range(count):
            layers.append(Bottleneck(channels, width, 2 if stage and block == 0 else 1, block == 0))
            channels = width * EXPANSION
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def measure(batch: int, size: int, rounds: int) -> tuple[list[Gradient], float]:
    """The gradients, and the median length of backward in seconds."""
    import torch

    torch.manual_seed(1)
    model = network()
    ready: dict[str, float] = {}
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: ready.__setitem__(name, time.perf_counter()))
    images, labels = torch.randn(batch, 3, size, size), torch.randint(1000, (batch,))
    shares: dict[str, list[float]] = {name: [] for name, _ in model.named_parameters()}
    lengths = []
    for number in range(WARM_UP + rounds):
        model.zero_grad()
        ready.clear()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        start = time.perf_counter()
        loss.backward()
        length = max(ready.values()) - start
        if number >= WARM_UP:
            lengths.append(length)
            for name, at in ready.items():
                shares[name].append((at - start) / length)
    rows = [Gradient(name, parameter.numel(), statistics.median(shares[name])) for name, parameter in model.named_parameters()]
    latest = max(row.share for row in rows)  # medians of several rounds: the last one may fall short of 1
    return [Gradient(row.name, row.elements, row.share / latest) for row in rows], statistics.median(lengths)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=4, help="images")
    parser.add_argument("--size", type=int, default=224, help="pixels of a side")
    parser.add_argument("--rounds", type=int, default=9, help=f"backward passes that count, after {WARM_UP}")
    parser.add_argument("--output", type=Path, default=CSV)
    options = parser.parse_args(arguments)
    gradients, length = measure(options.batch, options.size, options.rounds)
    head = [
        "# When the gradients of ResNet-50 are ready, as a share of backward, in order of registration.",
        f"# python tools/benches/resnet50_backward.py --batch {options.batch} --size {options.size} --rounds {options.rounds}",
        f"# Backward took {length * 1e3:.0f} ms on the CPU.",
        "name,elements,share",
    ]
    rows = [f"{row.name},{row.elements},{row.share:.6f}" for row in gradients]
    options.output.write_text("\n".join([*head, *rows]) + "\n")
    print(f"{len(rows)} gradients, {sum(row.elements for row in gradients)} elements: {options.output}")


if __name__ == "__main__":
    main()
