#!/usr/bin/env python3
"""Writes the model profiles of `penstock plan`: every gradient of a published architecture, and the work of its layer.

    tools/penstock/plan/profiles/generate.py            # writes all profiles beside this file
    tools/penstock/plan/profiles/generate.py vgg16      # prints one

A line is a gradient in order of registration, with its shape as PyTorch has it (torchvision's, Hugging Face's), and the
floating-point operations that its layer takes forward for one sample: two for each multiplication that is added up. A line
without a shape is work without a gradient: products of activations, a head that shares its weights. docs/plan.md has the format.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

# The sustained rate of a device of 2017 to 2020 in training with float32; its peak is 15.7 Tflop/s. Backward takes twice as long as forward.
SUSTAINED = 10e12


class Profile:
    """The lines of one model."""

    def __init__(self, about: str, samples: int) -> None:
        self.about, self.samples = about, samples
        self.lines: list[tuple[str, tuple[int, ...], int]] = []

    def gradient(self, name: str, shape: tuple[int, ...], flops: int = 0) -> None:
        self.lines.append((name, shape, flops))

    def work(self, name: str, flops: int) -> None:
        self.lines.append((name, (), flops))

    def norm(self, name: str, width: int, positions: int) -> None:
        """Mean, variance, scale and shift of every element."""
        self.gradient(f"{name}.weight", (width,), 8 * width * positions)
        self.gradient(f"{name}.bias", (width,))

    def linear(self, name: str, inputs: int, outputs: int, positions: int = 1, *, transposed: bool = False) -> None:
        shape = (inputs, outputs) if transposed else (outputs, inputs)
        self.gradient(f"{name}.weight", shape, 2 * inputs * outputs * positions)
        self.gradient(f"{name}.bias", (outputs,))

    def convolution(self, name: str, shape: tuple[int, int, int, int], side: int, *, bias: bool = False) -> None:
        """`side`: of the square that comes out."""
        self.gradient(f"{name}.weight", shape, 2 * math.prod(shape) * side * side)
        if bias:
            self.gradient(f"{name}.bias", (shape[0],))

    def attention_products(self, name: str, width: int, positions: int) -> None:
        """Queries by keys, and the result by values."""
        self.work(name, 2 * 2 * positions * positions * width)

    def parameters(self) -> int:
        return sum(math.prod(shape) for _, shape, _ in self.lines if shape)

    def flops(self) -> int:
        """Forward, of one sample."""
        return sum(flops for _, _, flops in self.lines)

    def text(self) -> str:
        forward = 1000 * self.flops() * self.samples / SUSTAINED
        head = [
            "# Written by generate.py, which is beside this file.",
            f"# about = {self.about}; {self.samples} samples a step at {SUSTAINED / 1e12:g} Tflop/s",
            f"# forward_ms = {forward:.3f}",
            f"# backward_ms = {2 * forward:.3f}",
            "name,shape,work",
        ]
        return "\n".join(head + [f"{name},{'x'.join(map(str, shape))},{flops}" for name, shape, flops in self.lines]) + "\n"


def resnet(blocks: tuple[int, ...], title: str, samples: int) -> Profile:
    """With bottlenecks, the stride in the middle convolution, as torchvision has it."""
    profile = Profile(f"{title}, He et al. 2016, as in torchvision, 224 x 224", samples)
    profile.convolution("conv1", (64, 3, 7, 7), 112)
    profile.norm("bn1", 64, 112 * 112)
    inputs, side = 64, 56
    for stage, count in enumerate(blocks):
        width = 64 << stage
        for block in range(count):
            name = f"layer{stage + 1}.{block}"
            before, side = side, side // 2 if stage > 0 and block == 0 else side
            profile.convolution(f"{name}.conv1", (width, inputs, 1, 1), before)
            profile.norm(f"{name}.bn1", width, before * before)
            profile.convolution(f"{name}.conv2", (width, width, 3, 3), side)
            profile.norm(f"{name}.bn2", width, side * side)
            profile.convolution(f"{name}.conv3", (4 * width, width, 1, 1), side)
            profile.norm(f"{name}.bn3", 4 * width, side * side)
            if block == 0:
                profile.convolution(f"{name}.downsample.0", (4 * width, inputs, 1, 1), side)
                profile.norm(f"{name}.downsample.1", 4 * width, side * side)
            inputs = 4 * width
    profile.linear("fc", inputs, 1000)
    return profile


def vgg16() -> Profile:
    profile = Profile("VGG-16, Simonyan and Zisserman 2015, as in torchvision, 224 x 224", 32)
    inputs, side, place = 3, 224, 0
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            profile.convolution(f"features.{place}", (width, inputs, 3, 3), side, bias=True)
            inputs, place = width, place + 2
        side, place = side // 2, place + 1
    for place, (inputs, outputs) in {0: (512 * 7 * 7, 4096), 3: (4096, 4096), 6: (4096, 1000)}.items():
        profile.linear(f"classifier.{place}", inputs, outputs)
    return profile


def bert(title: str, layers: int, width: int, samples: int) -> Profile:
    """BertModel with its pooler and without a head; sequences of 128."""
    length = 128
    profile = Profile(f"{title}, Devlin et al. 2019, with pooler and no head, sequences of {length}", samples)
    for name, rows in (("word", 30522), ("position", 512), ("token_type", 2)):
        profile.gradient(f"embeddings.{name}_embeddings.weight", (rows, width))
    profile.norm("embeddings.LayerNorm", width, length)
    for layer in range(layers):
        name = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            profile.linear(f"{name}.attention.self.{part}", width, width, length)
        profile.attention_products(f"{name}.attention.self", width, length)
        profile.linear(f"{name}.attention.output.dense", width, width, length)
        profile.norm(f"{name}.attention.output.LayerNorm", width, length)
        profile.linear(f"{name}.intermediate.dense", width, 4 * width, length)
        profile.linear(f"{name}.output.dense", 4 * width, width, length)
        profile.norm(f"{name}.output.LayerNorm", width, length)
    profile.linear("pooler.dense", width, width)
    return profile


def gpt2() -> Profile:
    """The head shares its weights with the embedding, whose gradient is ready last."""
    width, length, words = 768, 1024, 50257
    profile = Profile(f"GPT-2 small, Radford et al. 2019, head tied to the embedding, sequences of {length}", 8)
    profile.gradient("transformer.wte.weight", (words, width))
    profile.gradient("transformer.wpe.weight", (length, width))
    for layer in range(12):
        name = f"transformer.h.{layer}"
        profile.norm(f"{name}.ln_1", width, length)
        profile.linear(f"{name}.attn.c_attn", width, 3 * width, length, transposed=True)
        profile.attention_products(f"{name}.attn", width, length)
        profile.linear(f"{name}.attn.c_proj", width, width, length, transposed=True)
        profile.norm(f"{name}.ln_2", width, length)
        profile.linear(f"{name}.mlp.c_fc", width, 4 * width, length, transposed=True)
        profile.linear(f"{name}.mlp.c_proj", 4 * width, width, length, transposed=True)
    profile.norm("transformer.ln_f", width, length)
    profile.work("lm_head", 2 * words * width * length)
    return profile


def vit_large() -> Profile:
    width, patches = 1024, 14 * 14
    length = patches + 1
    profile = Profile("ViT-L/16, Dosovitskiy et al. 2021, as in torchvision, 224 x 224", 32)
    profile.gradient("class_token", (1, 1, width))
    profile.convolution("conv_proj", (width, 3, 16, 16), 14, bias=True)
    profile.gradient("encoder.pos_embedding", (1, length, width))
    for layer in range(24):
        name = f"encoder.layers.encoder_layer_{layer}"
        profile.norm(f"{name}.ln_1", width, length)
        profile.gradient(f"{name}.self_attention.in_proj_weight", (3 * width, width), 2 * 3 * width * width * length)
        profile.gradient(f"{name}.self_attention.in_proj_bias", (3 * width,))
        profile.attention_products(f"{name}.self_attention", width, length)
        profile.linear(f"{name}.self_attention.out_proj", width, width, length)
        profile.norm(f"{name}.ln_2", width, length)
        profile.linear(f"{name}.mlp.0", width, 4 * width, length)
        profile.linear(f"{name}.mlp.3", 4 * width, width, length)
    profile.norm("encoder.ln", width, length)
    profile.linear("heads.head", width, 1000)
    return profile


def lstm() -> Profile:
    """The large one for Penn Treebank: two layers of 1500, 35 steps, weights of their own in the decoder."""
    width, length, words = 1500, 35, 10000
    profile = Profile(f"LSTM, Zaremba et al. 2014 (large, two layers of {width}), sequences of {length}", 20)
    profile.gradient("encoder.weight", (words, width))
    for layer in range(2):
        for part in ("ih", "hh"):
            profile.gradient(f"rnn.weight_{part}_l{layer}", (4 * width, width), 2 * 4 * width * width * length)
        for part in ("ih", "hh"):
            profile.gradient(f"rnn.bias_{part}_l{layer}", (4 * width,))
    profile.linear("decoder", width, words, length)
    return profile


MODELS: dict[str, Callable[[], Profile]] = {
    "resnet50": lambda: resnet((3, 4, 6, 3), "ResNet-50", 32),
    "resnet152": lambda: resnet((3, 8, 36, 3), "ResNet-152", 32),
    "vgg16": vgg16,
    "bert-base": lambda: bert("BERT-base", 12, 768, 32),
    "bert-large": lambda: bert("BERT-large", 24, 1024, 32),
    "gpt2": gpt2,
    "vit-large": vit_large,
    "lstm": lstm,
}


def main() -> None:
    for name in sys.argv[1:]:
        print(MODELS[name]().text(), end="")
    if not sys.argv[1:]:
        for name, make in MODELS.items():
            (Path(__file__).parent / f"{name}.csv").write_text(make().text(), encoding="utf-8")


if __name__ == "__main__":
    main()
