"""sdk/wire against its oracle: equal bytes, equal choices, and each side reads the bytes of the other side."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from . import wire

PROGRAM = Path(__file__).resolve().parents[2] / "build" / "release" / "tests" / "wire_probe"


class Probe:
    """A running wire_probe."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words: object) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"wire_probe ended with {self._process.wait()}")
        return answer.strip()

    def write_positions(self, positions: np.ndarray, n: int, codings: int = 7) -> bytes:
        return bytes.fromhex(self.ask("write-positions", n, codings, *positions.tolist()))

    def read_positions(self, section: bytes, n: int) -> np.ndarray:
        answer = self.ask("read-positions", n, section.hex() or "-")
        assert not answer.startswith("refused"), answer
        return np.array([int(word) for word in answer.split()], np.int64)

    def write_values(self, values: np.ndarray, coding: int) -> tuple[bytes, np.ndarray]:
        section, *seen = self.ask("write-values", coding, *(f"{bits:08x}" for bits in values.view(np.uint32))).split()
        return bytes.fromhex(section), floats(seen)

    def read_values(self, section: bytes) -> np.ndarray:
        answer = self.ask("read-values", section.hex())
        assert not answer.startswith("refused"), answer
        return floats(answer.split())

    def close(self) -> None:
        self._process.communicate(timeout=10)


def floats(words: list[str]) -> np.ndarray:
    return np.array([int(word, 16) for word in words], np.uint32).view(np.float32)


@pytest.fixture(scope="module")
def probe() -> Iterator[Probe]:
    if not PROGRAM.exists():
        pytest.fail(f"{PROGRAM.name} is not built; build it: ninja -C build/release {PROGRAM.name}")
    running = Probe(PROGRAM)
    yield running
    running.close()


def drawn(n: int, count: int, seed: int = 1) -> np.ndarray:
    random = np.random.default_rng(seed)
    if n <= 10**7:
        return np.sort(random.choice(n, count, replace=False)).astype(np.int64)
    return np.unique(random.integers(0, n, 2 * count))[:count]


def clustered(n: int) -> np.ndarray:
    random = np.random.default_rng(2)
    row = np.repeat(random.random(n // 64) < 0.05, 64)
    return np.flatnonzero(row & (random.random(len(row)) < 0.4)).astype(np.int64)


CASES = {
    "none": (np.array([], np.int64), 1000),
    "one": (np.array([7], np.int64), 8),
    "the ends": (np.array([0, 2**32 - 1], np.int64), 2**32),
    "all": (np.arange(3001), 3001),
    "0.1 %": (drawn(400_000, 400), 400_000),
    "1 %": (drawn(400_000, 4000), 400_000),
    "10 %": (drawn(100_001, 10_001), 100_001),
    "70 %": (drawn(5000, 3500), 5000),
    "a group and one": (drawn(70_000, 513), 70_000),
    "clusters": (clustered(100_000), 100_000),
    "beyond 32 bits": (drawn(2**40, 2000), 2**40),
    "a cluster beyond 32 bits": (drawn(2**20, 3000) + 2**33, 2**34),
}


@pytest.mark.parametrize("case", CASES)
def test_positions_are_the_same_bytes_in_every_coding(probe: Probe, case: str) -> None:
    positions, n = CASES[case]
    sections = []
    for coding in (wire.RAW, wire.BLOCKS, wire.RICE):
        section = probe.write_positions(positions, n, 1 << coding)
        sections.append(section)
        parameter = int(np.frombuffer(section[1:3], np.int16)[0])
        assert section[0] in (wire.RAW, coding)
        assert section == wire.positions_section(positions, n, section[0], parameter)
        assert np.array_equal(probe.read_positions(section, n), positions)
    assert len(probe.write_positions(positions, n)) == min(map(len, sections))


@pytest.mark.parametrize("case", CASES)
def test_no_coding_and_no_parameter_is_shorter_than_the_chosen_one(probe: Probe, case: str) -> None:
    positions, n = CASES[case]
    if not len(positions):
        return
    lengths = {key: len(body) for key, body in wire.position_bodies(positions, n).items()}
    section = probe.write_positions(positions, n)
    chosen = section[0], int(np.frombuffer(section[1:3], np.int16)[0])
    # Each of the two parts of Rice's code ends in a whole byte, but the parameter was chosen by the number of bits.
    assert lengths[chosen] <= min(lengths.values()) + 1


def test_what_the_oracle_writes_with_any_parameter_is_read(probe: Probe) -> None:
    positions, n = CASES["1 %"]
    for coding, parameter in wire.position_bodies(positions, n):
        section = wire.positions_section(positions, n, coding, parameter)
        assert np.array_equal(probe.read_positions(section, n), positions), (coding, parameter)


def values(count: int, scale: float, seed: int = 3) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.standard_normal(count) * np.exp(random.standard_normal(count)) * scale).astype(np.float32)


@pytest.mark.parametrize("coding", [wire.FLOAT16, wire.BFLOAT16])
@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e-12, 1e-9, 1.0, 1e9, 1e12, 1e37])
def test_values_in_16_bits_are_the_same_bytes_at_any_scale(probe: Probe, coding: int, scale: float) -> None:
    for count in (1, 2, 513, 1001):
        given = values(count, scale)
        section, seen = wire.narrow_section(given, coding)
        assert probe.write_values(given, coding)[0] == section
        assert np.array_equal(probe.read_values(section), seen)
        assert np.array_equal(probe.write_values(given, coding)[1], seen)


@pytest.mark.parametrize("coding", [wire.FLOAT16, wire.BFLOAT16])
def test_values_next_to_the_largest_float32_stay_finite(probe: Probe, coding: int) -> None:
    given = np.array([np.finfo(np.float32).max, -3e38, 1.0, 0.0], np.float32)
    section, seen = wire.narrow_section(given, coding)
    assert bool(np.isfinite(seen).all()) and probe.write_values(given, coding)[0] == section
    assert np.array_equal(probe.read_values(section), seen)


@pytest.mark.parametrize("count", [3, 64, 65, 1001])
def test_signs_are_the_same_bits_and_means(probe: Probe, count: int) -> None:
    given = values(count, 1.0)
    given[1] = 0
    section, seen = wire.sign_section(given)
    ours, ours_seen = probe.write_values(given, wire.SIGN)
    means = len(wire.header(wire.SIGN, 0, count, 8 + (count + 7) // 8))
    assert ours[:means] == section[:means] and ours[means + 8 :] == section[means + 8 :]
    assert np.allclose(ours_seen, seen, rtol=2**-23, atol=0)  # ours adds in another order
    assert np.array_equal(probe.read_values(section), seen)


@pytest.mark.parametrize("coding", [wire.FLOAT32, wire.FLOAT16, wire.BFLOAT16, wire.SIGN])
def test_what_is_not_finite_travels_as_float32(probe: Probe, coding: int) -> None:
    for odd in (np.nan, np.inf, -np.inf):
        given = values(100, 1.0)
        given[50] = odd
        section, seen = probe.write_values(given, coding)
        assert section == wire.header(wire.FLOAT32, 0, 100, 400) + given.tobytes()
        assert seen.tobytes() == given.tobytes() == probe.read_values(section).tobytes()
