"""Shared functions of the scripts that run on several ranks."""

from __future__ import annotations

import faulthandler
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Callable

import torch
from stops import stop_now_and_then

import penstock.torch as hvd

# Ranks that still run print their tracebacks before the launcher ends them.
if "PENSTOCK_TEST_DEADLINE" in os.environ:
    faulthandler.dump_traceback_later(float(os.environ["PENSTOCK_TEST_DEADLINE"]) - 10)

if "PENSTOCK_TEST_STOPS" in os.environ:
    stop_now_and_then(os.environ["PENSTOCK_TEST_STOPS"])

# The types that can be reduced, and the types that can be moved.
REDUCIBLE = [torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
MOVABLE = REDUCIBLE + [torch.uint8, torch.int8, torch.int16]


def value(rank: int, shape: tuple, dtype: torch.dtype) -> torch.Tensor:
    """A rank's tensor: small integers, so that every type holds sums and products exactly."""
    count = int(torch.tensor(shape).prod()) if shape else 1
    return ((torch.arange(count) % 3) + 1 + rank).reshape(shape).to(dtype)


def begin() -> None:
    """Runs before the checks of a file, unless the file has a function of this name."""
    hvd.init()


def needs_torch(
    least: tuple[int, int], what: str
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """For checks that need a newer torch than the oldest torch of the package."""

    def wrapped(check: Callable[[], None]) -> Callable[[], None]:
        if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= least:
            return check
        return lambda: print(f"{check.__name__} left out: torch {torch.__version__} has no {what}")

    return wrapped


def run_checks(names: dict[str, object]) -> None:
    """Runs every function named check_*, in the order of definition, prints a failed check, and
    shuts down. Call after init()."""
    check_all(names)
    print("all checks passed", flush=True)


def check_all(names: dict[str, object]) -> None:
    """As run_checks, but prints nothing if all checks pass."""
    torch.set_num_threads(1)
    checks = {n: f for n, f in names.items() if n.startswith("check_") and callable(f)}
    assert checks, "no check was found"
    for name, check in checks.items():
        torch.manual_seed(1234)
        try:
            check()  # type: ignore[operator]
        except BaseException:
            print(
                f"rank {hvd.rank() if hvd.is_initialized() else '?'}: {name} "
                f"FAILED\n{traceback.format_exc()}",
                flush=True,
            )
            raise
    hvd.shutdown()


@contextmanager
def expect(kind: type[BaseException], *words: str) -> Iterator[None]:
    """The block must raise `kind` (exactly) with all words in its message."""
    try:
        yield
    except kind as error:
        assert type(error) is kind, f"{type(error).__name__} instead of {kind.__name__}: {error}"
        for word in words:
            assert word in str(error), f"{word!r} is not in {error}"
        return
    raise AssertionError(f"nothing was raised, expected {kind.__name__}")


def equal(got: torch.Tensor, expected: torch.Tensor) -> None:
    """Same type, shape and bits."""
    assert got.dtype == expected.dtype, f"{got.dtype} instead of {expected.dtype}"
    assert got.shape == expected.shape, f"{tuple(got.shape)} instead of {tuple(expected.shape)}"
    assert torch.equal(got, expected), f"{got} instead of {expected}"


def make_model(dtype: torch.dtype = torch.float32) -> torch.nn.Sequential:
    """A small network, equal on every rank."""
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(5, 9),
        torch.nn.Tanh(),
        torch.nn.Linear(9, 7),
        torch.nn.Tanh(),
        torch.nn.Linear(7, 3),
    ).to(dtype)


def make_batch(
    step: int, rows: int, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets of a step, equal on every rank."""
    generator = torch.Generator().manual_seed(100 + step)
    return torch.randn(rows, 5, generator=generator, dtype=dtype), torch.randn(
        rows, 3, generator=generator, dtype=dtype
    )


def loss_of(
    model: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    """Mean squared error."""
    return ((model(x) - y) ** 2).mean()


def mine(rows: torch.Tensor) -> torch.Tensor:
    """This rank's part of a batch."""
    return rows.chunk(hvd.size())[hvd.rank()]


def close(got: torch.nn.Module, expected: torch.nn.Module, tolerance: float = 1e-5) -> None:
    """Parameters agree to rounding: sums over ranks and over a batch round differently, some 1e-7
    per step."""
    for (name, a), b in zip(got.named_parameters(), expected.parameters()):
        torch.testing.assert_close(
            a, b, rtol=tolerance, atol=tolerance, msg=lambda m: f"{name}: {m}"
        )


def same_bits_on_all_ranks(model: torch.nn.Module) -> None:
    """Checks that all ranks have equal parameters."""
    flat = torch.cat([p.detach().reshape(-1).float() for p in model.parameters()])
    for other in hvd.allgather(flat.reshape(1, -1)):
        assert torch.equal(flat, other), "parameters differ between ranks"


def say(text: str) -> None:
    """Prints a line in one write, so that lines of several ranks are not mixed."""
    print(f"{text}\n", end="", flush=True)


def survivors_have_spoken(rank: int, count: int) -> None:
    """Waits for the other survivors. mpirun ends all ranks as soon as one rank ends without
    MPI_Finalize, so other survivors would not print their errors."""
    said = Path(os.environ["TMPDIR"])  # the launch's own (launch.py)
    (said / f"survivor{rank}").touch()
    while len(list(said.glob("survivor*"))) < count:
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit("this file holds helpers; run one of the others")
