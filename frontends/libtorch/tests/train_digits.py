"""The example's training in Python, over penstock.torch: what frontends/libtorch/example/digits.cpp must do to the bit.

    python train_digits.py --data FILE --initial FILE --steps N --out FOLDER --train CONFIG MOMENTUM ...

Trains once for each --train, in turn; rank 0 writes FOLDER/STEM.json with its losses and FOLDER/STEM.weights.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from pathlib import Path

import numpy as np
import torch

import penstock.torch as hvd

TRAINED, IMAGES, SEED, RATE = 1500, 32, 1, 0.1
WORD = 2**64 - 1


def read_digits(file: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """float32[images, 64] and int64[images]."""
    data = file.read_bytes()
    images, pixels = struct.unpack_from("<II", data, 8)
    split = 16 + 4 * images * pixels
    flat = np.frombuffer(data[16:split], dtype="<f4").reshape(images, pixels)
    labels = np.frombuffer(data[split:], dtype="u1").astype(np.int64)
    return torch.from_numpy(flat.copy()), torch.from_numpy(labels)


def mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & WORD
    return value ^ (value >> 31)


def batch(step: int, rank: int) -> torch.Tensor:
    """The numbers of the images that `rank` sees in `step`."""
    key = mix(mix(mix(SEED) ^ step) ^ rank)
    return torch.tensor([mix(key ^ i) % TRAINED for i in range(IMAGES)])


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
        )

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.layers(pixels)


def weights_of(network: torch.nn.Module) -> bytes:
    """All parameters as float32, one after the other."""
    return b"".join(p.detach().contiguous().numpy().tobytes() for p in network.parameters())


def set_weights(network: torch.nn.Module, data: bytes) -> None:
    flat = torch.from_numpy(np.frombuffer(data, dtype="<f4").copy())
    with torch.no_grad():
        for parameter, values in zip(network.parameters(), flat.split([p.numel() for p in network.parameters()])):
            parameter.copy_(values.view_as(parameter))


def train(options: argparse.Namespace, config: str, momentum: float) -> tuple[list[float], bytes]:
    pixels, labels = read_digits(options.data)
    network = Network()
    set_weights(network, options.initial.read_bytes())
    sgd = torch.optim.SGD(network.parameters(), lr=RATE, momentum=momentum)
    optimizer = hvd.DistributedOptimizer(sgd, network.named_parameters(), scheme=config)
    hvd.broadcast_parameters(network.state_dict(), root_rank=0)
    losses = []
    for step in range(options.steps):
        chosen = batch(step, hvd.rank())
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(pixels[chosen]), labels[chosen])
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    optimizer.close()
    return losses, weights_of(network)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--initial", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--train", nargs=2, action="append", metavar=("CONFIG", "MOMENTUM"), required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    for config, momentum in options.train:
        losses, weights = train(options, config, float(momentum))
        if hvd.rank() == 0:
            (options.out / f"{Path(config).stem}.json").write_text(json.dumps({"losses": losses}))
            (options.out / f"{Path(config).stem}.weights").write_bytes(weights)
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
