"""Tensors with every property that torch gives a tensor, for the checks that send them through
every door (every_kind.py).

A `Kind` takes one choice from each of the AXES. A choice changes a tensor and returns the values
that it has now, as a plain tensor. torch has not all combinations: a choice may raise an error, and
`drawn` then draws again.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Callable

import torch
from torch.utils import _pytree

GUARD = 3  # elements before and after a tensor that nobody may change


class Mine(torch.Tensor):
    """A subclass without a meaning of its own."""


class _Computed(torch.Tensor):
    """A subclass whose values follow from the tensor `held` by `read`."""

    held: torch.Tensor

    @classmethod
    def read(cls, held: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    @classmethod
    def written(cls, values: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    @classmethod
    def __torch_dispatch__(  # type: ignore[no-untyped-def]
        cls, function, types, arguments=(), keywords=None
    ):
        if function is torch.ops.aten.detach.default:
            return cls(arguments[0].held)
        def plain(one: Any) -> Any:
            return one.read(one.held) if isinstance(one, _Computed) else one

        result = function(*_pytree.tree_map(plain, arguments), **(keywords or {}))
        if function._schema.name.endswith("_") and isinstance(arguments[0], _Computed):
            target = arguments[0]
            target.held.copy_(target.written(result))
            return target
        return result


class Doubled(_Computed):
    """Lies over real memory, which holds the half of each value."""

    def __new__(cls, held: torch.Tensor) -> Doubled:
        made = torch.Tensor._make_subclass(cls, held)
        made.held = held
        return made

    @classmethod
    def read(cls, held: torch.Tensor) -> torch.Tensor:
        return held * 2

    @classmethod
    def written(cls, values: torch.Tensor) -> torch.Tensor:
        return values / 2


class Wrapping(_Computed):
    """Has no memory of its own."""

    def __new__(cls, held: torch.Tensor) -> Wrapping:
        made = torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), dtype=held.dtype, device=held.device
        )
        made.held = held
        return made

    @classmethod
    def read(cls, held: torch.Tensor) -> torch.Tensor:
        return held + 0

    @classmethod
    def written(cls, values: torch.Tensor) -> torch.Tensor:
        return values


Made = tuple[torch.Tensor, torch.Tensor]  # a tensor, and its values as a plain tensor
Choice = Callable[[torch.Tensor], Made]


def same(change: Callable[[torch.Tensor], torch.Tensor]) -> Choice:
    """A choice that leaves the values."""
    return lambda tensor: (change(tensor), tensor.clone())


def _between_guards(tensor: torch.Tensor) -> torch.Tensor:
    storage = torch.full((tensor.numel() + 2 * GUARD,), 7).to(tensor.dtype)
    inner = storage[GUARD : GUARD + tensor.numel()].view(tensor.shape)
    return inner.copy_(tensor)


def _with_gaps(tensor: torch.Tensor) -> torch.Tensor:
    return torch.full((*tensor.shape, 2), 7).to(tensor.dtype)[..., 0].copy_(tensor)


def _backwards(tensor: torch.Tensor) -> torch.Tensor:
    order = tuple(range(tensor.dim()))[::-1]
    return tensor.permute(order).contiguous().permute(order)


def _expanded(tensor: torch.Tensor) -> Made:
    row = tensor.reshape(-1)[:1].clone()
    whole = row.expand(tensor.numel()).as_strided(tensor.shape, [0] * tensor.dim())
    return whole, whole.clone()


def _overlapping(tensor: torch.Tensor) -> Made:
    whole = tensor.reshape(-1).clone().as_strided(tensor.shape, [1] * tensor.dim())
    return whole, whole.clone()


def _conjugate(tensor: torch.Tensor) -> torch.Tensor:
    assert tensor.is_complex()
    return tensor.conj().resolve_conj().conj()


def _zeros(tensor: torch.Tensor) -> Made:
    nothing = torch._efficientzerotensor(tensor.shape, dtype=tensor.dtype)
    return nothing, torch.zeros_like(tensor)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)


def _inference(tensor: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return tensor.clone()


def _shared(tensor: torch.Tensor) -> torch.Tensor:
    assert tensor.data_ptr() != 0  # torch crashes where there is no memory
    return tensor.share_memory_()


def _part_of_all(tensor: torch.Tensor) -> torch.Tensor:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate

    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    return DTensor.from_local(tensor, mesh, [Replicate()], run_check=False)


def _quantized(tensor: torch.Tensor) -> torch.Tensor:
    return torch.quantize_per_tensor(tensor, 1.0, 0, torch.qint8)


def _nested(layout: torch.layout) -> Choice:
    return same(lambda tensor: torch.nested.nested_tensor([_plain(tensor)] * 2, layout=layout))


UNCHANGED = same(lambda tensor: tensor)

AXES: dict[str, dict[str, Choice]] = {
    "layout": {
        "contiguous": UNCHANGED,
        "between guards": same(_between_guards),
        "with gaps": same(_with_gaps),
        "backwards": same(_backwards),
        "expanded": _expanded,
        "overlapping": _overlapping,
    },
    "bit": {
        "no bit": UNCHANGED,
        "negative": same(lambda tensor: torch._neg_view(-tensor)),
        "conjugate": same(_conjugate),
        "zeros without memory": _zeros,
    },
    "holder": {
        "Tensor": UNCHANGED,
        "Parameter": same(lambda tensor: torch.nn.Parameter(tensor, requires_grad=False)),
        "subclass": same(lambda tensor: tensor.as_subclass(Mine)),
        "subclass that doubles": same(lambda tensor: Doubled(_plain(tensor) / 2)),
        "subclass without memory": same(lambda tensor: Wrapping(_plain(tensor))),
        "DTensor": same(_part_of_all),
    },
    "state": {
        "no state": UNCHANGED,
        "requires_grad": same(lambda tensor: tensor.detach().requires_grad_()),
        "inference": same(_inference),
        "shared": same(_shared),
        "named": same(lambda tensor: tensor.rename(*"abcd"[: tensor.dim()])),
    },
    "storage": {
        "dense": UNCHANGED,
        "meta": same(lambda tensor: tensor.to("meta")),
        "quantized": same(_quantized),
        "sparse": same(lambda tensor: tensor.to_sparse()),
        "sparse csr": same(lambda tensor: tensor.to_sparse_csr()),
        "mkldnn": same(lambda tensor: tensor.to_mkldnn()),
        "nested": _nested(torch.strided),
        "jagged": _nested(torch.jagged),
    },
}
DTYPES = sorted({one for one in vars(torch).values() if isinstance(one, torch.dtype)}, key=str)
SHAPES = ((2, 3), (), (1,), (0,), (6,), (4, 0), (2, 2, 2))


@dataclass(frozen=True)
class Kind:
    """A kind of tensor: an element type, a shape, and a choice of each axis."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    choices: tuple[str, ...]

    def made(self, rank: int) -> Made:
        """A tensor of this kind, with the values of this rank."""
        count = torch.Size(self.shape).numel()
        tensor = values = ((torch.arange(count) % 3) + 1 + rank).reshape(self.shape).to(self.dtype)
        for axis, choice in zip(AXES.values(), self.choices):
            tensor, _ = axis[choice](tensor)
            values = _values(axis[choice], values)
        return tensor, values

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape} {', '.join(self.choices)}"


def _values(choice: Choice, values: torch.Tensor) -> torch.Tensor:
    return choice(values)[1] if choice in (_expanded, _overlapping, _zeros) else values


def drawn(count: int, seed: int, shapes: tuple[tuple[int, ...], ...] = SHAPES) -> list[Kind]:
    """Kinds that torch has: each choice alone, in the first shape, and then choices at random, of
    which half are the usual ones."""
    random_numbers = random.Random(seed)
    kinds: list[Kind] = []
    for kind in _every(random_numbers, shapes):
        if kind not in kinds and _exists(kind):
            kinds.append(kind)
        if len(kinds) == count:
            return kinds
    raise AssertionError("never reached")


def _every(
    random_numbers: random.Random, shapes: tuple[tuple[int, ...], ...]
) -> Iterator[Kind]:
    for axis, choices in AXES.items():
        for choice in choices:
            alone = tuple(choice if name == axis else next(iter(AXES[name])) for name in AXES)
            dtype = torch.complex64 if choice == "conjugate" else torch.float32
            yield Kind(dtype, shapes[0], alone)
    while True:
        usual = random_numbers.random() < 0.5
        yield Kind(
            torch.float32 if usual else random_numbers.choice(DTYPES),
            random_numbers.choice(shapes),
            tuple(
                next(iter(axis)) if random_numbers.random() < 0.5
                else random_numbers.choice(list(axis))
                for axis in AXES.values()
            ),
        )  # fmt: skip


def _exists(kind: Kind) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind.made(0)
    except Exception:  # noqa: BLE001 - torch has no such tensor
        return False
    return True


# ---- the properties of torch.Tensor ----

# Properties that a choice above gives a tensor.
DRAWN = frozenset(
    "is_coalesced is_complex is_conj is_contiguous is_cpu is_floating_point is_inference is_leaf "
    "is_meta is_mkldnn is_neg is_nested is_quantized is_shared is_signed is_sparse is_sparse_csr "
    "_is_view _is_zerotensor has_names".split()
)
# Devices whose memory the core never reads in place, and CUDA, which tests with devices try.
DEVICES = frozenset(
    "is_cuda is_hpu is_ipu is_maia is_mps is_mtia is_ort is_vulkan is_xla is_xpu".split()
)
# They say nothing about what the memory means. `is_pinned` needs a device.
HARMLESS = frozenset(
    "is_distributed is_nonzero is_pinned is_same_size is_set_to _is_all_true _is_any_true".split()
)


def unknown(names: list[str]) -> list[str]:
    """The properties among these attributes of torch.Tensor that no list above has."""
    asked = [name for name in names if name.startswith(("is_", "_is_", "has_"))]
    return [name for name in asked if name not in DRAWN | DEVICES | HARMLESS]
