"""The fragments of a model: layer l belongs to fragment l mod F, so every fragment has layers of
every depth (the strided pattern of Streaming DiLoCo)."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.torch.checks import Named


def layer_of(name: str) -> str:
    """The name of the layer to which a parameter belongs: up to the first number in the name, such
    as "blocks.3" of "blocks.3.mlp.weight". Without a number the name of the module."""
    parts = name.split(".")
    for place, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[: place + 1])
    return ".".join(parts[:-1]) or name


def fragments_of(named: Named, fragments: int) -> Sequence[Named]:
    """The parameters of each fragment, in their order. ValueError if there are fewer layers than
    fragments."""
    layers: dict[str, int] = {}
    for name, _ in named:
        layers.setdefault(layer_of(name), len(layers))
    if len(layers) < fragments:
        raise ValueError(
            f"fragments is {fragments}, and the optimizer's parameters form {len(layers)} "
            f"layer{'s' * (len(layers) != 1)} ({', '.join(list(layers)[:4])}), expected a layer or "
            f"more for each fragment: lower fragments to {len(layers)} or less"
        )
    parts: list[Named] = [[] for _ in range(fragments)]
    for name, parameter in named:
        parts[layers[layer_of(name)] % fragments].append((name, parameter))
    return parts
