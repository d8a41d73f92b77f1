"""The examples' training in Python, over penstock.torch. The C++ examples must match it to the bit.

    python train_example.py --task digits --data FILE --initial FILE --steps N --out FOLDER --train CONFIG MOMENTUM ...

With --every H the ranks train apart for H steps, with --fragments, --delay and --mix of LocalSteps. Trains once for each --train, in turn. Rank 0 writes FOLDER/STEM.json with its losses and FOLDER/STEM.weights.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import penstock.torch as hvd

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from quickstart_job.model import CharacterTransformer  # noqa: E402

TRAINED, IMAGES, WINDOWS, CONTEXT, SEED = 1500, 32, 8, 64, 1
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


def draw(step: int, rank: int, count: int, below: int) -> list[int]:
    """The data of `rank` in `step`."""
    key = mix(mix(mix(SEED) ^ step) ^ rank)
    return [mix(key ^ i) % below for i in range(count)]


class DigitsNetwork(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
        )

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.layers(pixels)


class Digits:
    rate = 0.1

    def __init__(self, file: Path) -> None:
        self.pixels, self.labels = read_digits(file)

    def network(self) -> torch.nn.Module:
        return DigitsNetwork()

    def loss(self, network: torch.nn.Module, step: int) -> torch.Tensor:
        chosen = torch.tensor(draw(step, hvd.rank(), IMAGES, TRAINED))
        return cross_entropy(network(self.pixels[chosen]), self.labels[chosen])


class Text:
    rate = 0.3

    def __init__(self, file: Path) -> None:
        data = file.read_bytes()
        self.vocabulary, length = struct.unpack_from("<II", data, 6)
        self.codes = torch.from_numpy(np.frombuffer(data[14:], dtype="u1").astype(np.int64))
        assert len(self.codes) == length
        self.limit = length - length // 50 - CONTEXT

    def network(self) -> torch.nn.Module:
        return CharacterTransformer(self.vocabulary, context=CONTEXT)

    def loss(self, network: torch.nn.Module, step: int) -> torch.Tensor:
        rows = torch.stack([self.codes[first : first + CONTEXT + 1] for first in draw(step, hvd.rank(), WINDOWS, self.limit)])
        logits = network(rows[:, :-1].contiguous())
        return cross_entropy(logits.reshape(-1, self.vocabulary), rows[:, 1:].reshape(-1))


def weights_of(network: torch.nn.Module) -> bytes:
    """All parameters as float32, one after the other."""
    return b"".join(p.detach().contiguous().numpy().tobytes() for p in network.parameters())


def set_weights(network: torch.nn.Module, data: bytes) -> None:
    flat = torch.from_numpy(np.frombuffer(data, dtype="<f4").copy())
    with torch.no_grad():
        for parameter, values in zip(network.parameters(), flat.split([p.numel() for p in network.parameters()])):
            parameter.copy_(values.view_as(parameter))


def train(options: argparse.Namespace, config: str, momentum: float) -> tuple[list[float], bytes]:
    task = {"digits": Digits, "text": Text}[options.task](options.data)
    network = task.network()
    set_weights(network, options.initial.read_bytes())
    sgd = torch.optim.SGD(network.parameters(), lr=task.rate, momentum=momentum)
    if options.every:
        optimizer = hvd.LocalSteps(
            sgd, every=options.every, fragments=options.fragments, delay=options.delay, mix=options.mix, scheme=config,
            named_parameters=network.named_parameters(),
        )  # fmt: skip
    else:
        optimizer = hvd.DistributedOptimizer(sgd, network.named_parameters(), scheme=config)
    hvd.broadcast_parameters(network.state_dict(), root_rank=0)
    losses = []
    for step in range(options.steps):
        optimizer.zero_grad()
        loss = task.loss(network, step)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    if options.every:
        optimizer.synchronize()
    optimizer.close()
    return losses, weights_of(network)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=("digits", "text"), required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--initial", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--every", type=int, default=0)
    parser.add_argument("--fragments", type=int, default=1)
    parser.add_argument("--delay", type=int, default=0)
    parser.add_argument("--mix", type=float, default=0.0)
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
