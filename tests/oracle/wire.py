"""Coded sections of positions and values in NumPy, from the table in docs/payloads.md and the mathematics of the codes."""

from __future__ import annotations

import math

import numpy as np

RAW, BLOCKS, RICE = 0, 1, 2
FLOAT32, FLOAT16, BFLOAT16, SIGN = 0, 1, 2, 3
BLOCK, GROUP, LANES = 65536, 512, 16


def number(value: int) -> bytes:
    """Seven bits per byte, the lowest first. The top bit says that more bytes follow."""
    out = bytearray()
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes([*out, value])


def header(coding: int, parameter: int, count: int, length: int) -> bytes:
    return bytes([coding]) + np.int16(parameter).tobytes() + number(count) + number(length)


def packed(bits: np.ndarray) -> bytes:
    return np.packbits(bits.astype(bool), bitorder="little").tobytes()


def bits_of(values: np.ndarray, width: int) -> np.ndarray:
    """A row of bits for each value, the lowest first."""
    return (values.astype(np.uint64)[:, None] >> np.arange(width, dtype=np.uint64)) & np.uint64(1)


def gaps(positions: np.ndarray) -> np.ndarray:
    return np.diff(positions, prepend=-1) - 1


def rice_body(positions: np.ndarray, parameter: int) -> bytes:
    between = gaps(positions)
    low, quotients = between % 2**parameter, between // 2**parameter
    whole = len(low) // GROUP * GROUP
    body = b""
    if parameter > 0:
        for group in low[:whole].reshape(-1, GROUP // LANES, LANES):
            lanes = np.stack([bits_of(group[:, lane], parameter).reshape(-1) for lane in range(LANES)])
            words = lanes.reshape(LANES, parameter, 32).transpose(1, 0, 2)  # by words, and by lanes in each word
            body += packed(words.reshape(-1))
        body += packed(bits_of(low[whole:], parameter).reshape(-1))
    unary = np.zeros(int(quotients.sum()) + len(quotients), bool)
    unary[np.cumsum(quotients + 1) - 1] = True
    return body + packed(unary)


def position_bodies(positions: np.ndarray, n: int) -> dict[tuple[int, int], bytes]:
    """By coding and parameter. For Rice's code all parameters except hopeless ones."""
    width = np.uint32 if n <= 2**32 else np.uint64
    bodies = {(RAW, 0): positions.astype(width).tobytes()}
    blocks = -(-n // BLOCK)
    if blocks < 2**20:
        counts = np.bincount(positions // BLOCK, minlength=blocks)[:-1].astype(np.uint32)
        bodies[BLOCKS, 0] = counts.tobytes() + (positions % BLOCK).astype(np.uint16).tobytes()
    for parameter in range(32):
        if int((gaps(positions) >> parameter).sum()) <= 64 * len(positions):
            bodies[RICE, parameter] = rice_body(positions, parameter)
    return bodies


def positions_section(positions: np.ndarray, n: int, coding: int, parameter: int) -> bytes:
    body = position_bodies(positions, n)[coding, parameter] if len(positions) else b""
    return header(coding, parameter, len(positions), len(body)) + body


def exponent(largest: float) -> int:
    return math.frexp(largest)[1] - 1


def bfloat16(values: np.ndarray) -> np.ndarray:
    """The codes of float64 values that have few enough digits for float32."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)


def narrow_section(values: np.ndarray, coding: int) -> tuple[bytes, np.ndarray]:
    """The bytes of float32 values, and the decoded values."""
    top = 14 if coding == FLOAT16 else 0
    largest = float(np.abs(values).max())
    power = exponent(largest) - top if largest > 0 else 0
    scaled = np.ldexp(values.astype(np.float64), -power)
    if power + top == 127:  # rounding up would exceed float32
        most = np.ldexp(2.0 - (2.0**-10 if coding == FLOAT16 else 2.0**-7), top)
        scaled = np.clip(scaled, -most, most)
    codes = scaled.astype(np.float16).view(np.uint16) if coding == FLOAT16 else bfloat16(scaled)
    wide = codes.view(np.float16).astype(np.float64) if coding == FLOAT16 else (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return header(coding, power, len(values), 2 * len(values)) + codes.tobytes(), np.ldexp(wide, power).astype(np.float32)


def sign_section(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    negative = values < 0
    means = np.zeros(2, np.float32)
    for side in (0, 1):
        of_side = values[negative == bool(side)]
        if len(of_side):
            means[side] = math.fsum(of_side.astype(np.float64)) / len(of_side)
    body = means.tobytes() + packed(negative)
    return header(SIGN, 0, len(values), len(body)) + body, means[negative.astype(int)]
