"""Call compiled CPU kernels one by one, and say in NumPy what they must give, down to the last bit.

Kernels come from the user's own cache of compiled ones, so a second run compiles nothing.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from expected_tables import make_expected
from numpy.typing import NDArray

from edgellm import paths
from edgellm.kernels import formats
from edgellm.kernels.cpu import isa, lower, objects, slots, threads
from edgellm.kernels.cpu.memory import address, aligned

Floats = NDArray[np.float32]
LEVEL_NAMES = tuple(level.name for level in isa.LEVELS)
TILE_TOKENS = (1, 2, 4)
FORMAT_NAMES = tuple(formats.FORMATS)
INT8_FORMATS = tuple(n for n, f in formats.FORMATS.items() if f.packed.activation == "q8")
ALL_KERNELS = (
    *threads.KERNELS,
    *lower.KERNELS,
    "pack_matrix",
    *(f"{kind}_{n.lower()}" for n in FORMAT_NAMES for kind in ("pack", "expand")),
    *(f"tile_{n.lower()}_{t}" for n in FORMAT_NAMES for t in TILE_TOKENS),
)


def get_level(name: str) -> isa.Level:
    """The level of that name; skips the test where this machine lacks it."""
    level = next(lv for lv in isa.LEVELS if lv.name == name)
    lacks = isa.missing(level, platform.machine(), isa.host_features())
    if lacks:
        pytest.skip(f"this machine lacks {lacks}, which the level {name} needs")
    return level


def get_available_levels() -> list[str]:
    """Names of the levels that this machine has."""
    features = isa.host_features()
    return [lv.name for lv in isa.LEVELS if not isa.missing(lv, platform.machine(), features)]


@functools.cache
def get_kernels(level: str) -> Mapping[str, int]:
    """Addresses of all kernels of a level."""
    return objects.addresses(ALL_KERNELS, get_level(level), paths.home() / "kernels")


# ---- memory ----
def make_rows(values: NDArray[Any], fill: float = 0.0) -> Floats:
    """An aligned copy f32[T, stride] of f32[T, W], rows padded as the CPU's buffers are; the padding holds `fill`."""
    stride = lower.row_stride(values.shape[1]) // 4
    rows = aligned(len(values) * stride * 4).view(np.float32).reshape(len(values), stride)
    rows[:] = fill
    rows[:, : values.shape[1]] = values
    return rows


def make_copy(values: NDArray[Any]) -> NDArray[Any]:
    """An aligned copy with readable bytes behind it."""
    copy = aligned(values.nbytes).view(values.dtype).reshape(values.shape)
    copy[:] = values
    return copy


def call(
    level: str, kernel: str, arguments: Sequence[int], chunks: Sequence[int], context: Mapping[int, int] | None = None
) -> None:
    """Run chunks of a kernel in the order given. context: words of the context that the kernel reads."""
    record = np.zeros(slots.OP_WORDS, np.int64)
    record[slots.ARG : slots.ARG + len(arguments)] = arguments
    scratch, words = aligned(1 << 16), aligned(8 * slots.CONTEXT_WORDS).view(np.int64)
    words[slots.SCRATCH], words[slots.SCRATCH_BYTES] = address(scratch), 0
    for word, value in (context or {}).items():
        words[word] = value
    for chunk in chunks:
        threads.run_chunk(get_kernels(level)[kernel], record, words, chunk)


def float_word(value: float) -> int:
    """A float32 as a record holds it."""
    return int(np.float32(value).view(np.int32))


# ---- activations ----
@dataclass(frozen=True)
class Activations:
    """What a row of activations becomes: values i8[T, G, 32], scales f32[T, G], scaled sums f32[T, G]."""

    values: NDArray[np.int8]
    scales: Floats
    sums: Floats


def quantised(x: Floats) -> Activations:
    """The definition: per group of 32 d = max|x| / 127, values rint(x * (1 / d)), sum d * sum of values; all float32."""
    groups = x.reshape(len(x), -1, 32)
    d = np.abs(groups).max(axis=-1) / np.float32(127)
    usable = d > np.float32(1e-38)
    inverse = np.where(usable, np.float32(1) / np.where(usable, d, 1), np.float32(0)).astype(np.float32)
    values = np.rint(np.minimum(groups * inverse[..., None], np.float32(127))).astype(np.int8)
    return Activations(values, d, d * values.sum(axis=-1, dtype=np.int32).astype(np.float32))


def write_tiles(level: str, x: Floats, tokens: int) -> NDArray[np.uint8]:
    """Quantise rows f32[T, K] with the kernel: activation tiles of `tokens` rows. -> u8[tiles, K / 32, 48 tokens]."""
    groups, tiles = x.shape[1] // 32, -(-len(x) // tokens)
    out = aligned(tiles * groups * 48 * tokens)
    rows = make_rows(x)
    arguments = [address(rows), rows.strides[0], address(out), groups, slots.QUANTISE, tokens]
    call(level, "quantise", arguments, range(len(x)))
    return out.reshape(tiles, groups, 48 * tokens)


def read_tiles(tiles: NDArray[np.uint8], rows: int, tokens: int) -> tuple[Activations, NDArray[np.int16]]:
    """Take activation tiles apart. -> the activations of the first `rows` rows, and starts i16[T, G, 2 halves, 2]."""
    count, groups, _ = tiles.shape

    def field(first: int, end: int, kind: type, *shape: int) -> NDArray[Any]:
        part = np.ascontiguousarray(tiles[:, :, first * tokens : end * tokens]).view(kind)
        return part.reshape(count, groups, *shape)

    values = field(0, 32, np.int8, 8, tokens, 4).transpose(0, 3, 1, 2, 4).reshape(-1, groups, 32)
    scales = field(32, 36, np.float32, tokens).transpose(0, 2, 1).reshape(-1, groups)
    sums = field(36, 40, np.float32, tokens).transpose(0, 2, 1).reshape(-1, groups)
    starts = field(40, 48, np.int16, 2, tokens, 2).transpose(0, 3, 1, 2, 4).reshape(-1, groups, 2, 2)
    return Activations(values[:rows], scales[:rows], sums[:rows]), starts[:rows]


# ---- matrices ----
def pack(level: str, name: str, raw: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    """Pack raw rows u8[N, row_bytes]. -> u8[row groups, bytes of a packed group]; the tail repeats the last row."""
    format, kernels = formats.get(name), get_kernels(level)
    units = width // format.packed.columns
    source, function = make_copy(raw), threads.tile_function(5)(kernels[f"pack_{name.lower()}"])
    packed = aligned(format.packed_bytes(len(raw), width)).reshape(-(-len(raw) // 8), -1)
    for g in range(len(packed)):
        rows = min(8, len(raw) - 8 * g)
        function(address(source) + 8 * g * raw.shape[1], raw.shape[1], rows, address(packed[g]), units)
    return packed


def expand(level: str, name: str, raw: NDArray[np.uint8], width: int) -> Floats:
    """Raw rows u8[N, row_bytes] packed, then each written as float32. -> f32[N, width]."""
    packed, units = pack(level, name, raw, width), width // formats.get(name).packed.columns
    function = threads.tile_function(4)(get_kernels(level)[f"expand_{name.lower()}"])
    out = make_rows(np.zeros((len(raw), width), np.float32))
    for i in range(len(raw)):
        function(address(packed[i // 8]), i % 8, address(out[i]), units)
    return out[:, :width].copy()


def product(
    level: str, name: str, raw: NDArray[np.uint8], x: Floats, tokens: int, into: Floats | None = None
) -> Floats:
    """x f32[T, K] times a raw matrix, by pack and tile kernels. into: add to these rows f32[T, N]. -> f32[T, N]."""
    format, count, width = formats.get(name), len(x), x.shape[1]
    packed, tiles = pack(level, name, raw, width), -(-count // tokens)
    padded = np.zeros((tiles * tokens, 8 * len(packed)), np.float32)
    if into is not None:
        padded[:count, : into.shape[1]] = into
    y = make_rows(padded)
    if format.packed.activation == "q8":
        acts = write_tiles(level, x, tokens)
    else:
        rows = make_rows(np.concatenate([x, np.zeros((tiles * tokens - count, width), np.float32)]))
        acts = rows.reshape(tiles, -1).view(np.uint8)
    function = threads.tile_function(7)(get_kernels(level)[f"tile_{name.lower()}_{tokens}"])
    stride = y.strides[0]
    for g in range(len(packed)):
        for t in range(tiles):
            at = address(y) + t * tokens * stride + 32 * g
            function(
                address(packed[g]),
                address(acts) + t * acts.strides[0],
                width // format.packed.columns,
                at,
                stride,
                int(into is not None),
                0,
            )
    return y[:count, : len(raw)].copy()


# ---- what it must be ----
def fma(x: NDArray[Any], y: NDArray[Any], z: NDArray[Any]) -> Floats:
    """x * y + z of float32, rounded once.

    The product is exact in float64. The sum is rounded to odd there (its error, by Knuth's two-sum, says whether it was
    exact), which makes the second rounding, to float32, the only one that counts (Boldo and Melquiond 2008).
    """
    p, z = np.broadcast_arrays(np.float64(x) * np.float64(y), np.float64(z))
    s = p + z
    part = s - p
    error = (p - (s - part)) + (z - part)
    even = (s.view(np.int64) & 1) == 0
    odd = np.nextafter(s, np.where(error > 0, np.inf, -np.inf))
    result: Floats = np.where((error != 0) & even, odd, s).astype(np.float32)
    return result


def expected_product(name: str, raw: NDArray[np.uint8], x: Floats) -> Floats:
    """x times a raw matrix in the order of float operations that the format's `tile` documents. -> f32[T, N]."""
    if formats.get(name).packed.activation == "f32":
        weights, acc = formats.get(name).dequantize(raw), np.zeros((len(x), len(raw)), np.float32)
        for k in range(x.shape[1]):
            acc = fma(weights[:, k], x[:, k : k + 1], acc)
        return acc
    return _EXPECTED[name](raw, quantised(x))


def _half(field: NDArray[np.uint8]) -> Floats:
    return np.ascontiguousarray(field).view("<f2")[..., 0].astype(np.float32)


def _dots(q: NDArray[Any], acts: Activations) -> NDArray[np.int64]:
    """Integer sums i64[T, N, G] of weights [N, G, 32] and activations."""
    return np.einsum("ngk,tgk->tng", q.astype(np.int64), acts.values.astype(np.int64))


def _nibbles(qs: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.concatenate([qs & 15, qs >> 4], axis=-1)


def _simple(
    take: Callable[[NDArray[np.uint8]], tuple[Any, Floats, Floats | None]], size: int
) -> Callable[[NDArray[np.uint8], Activations], Floats]:
    """Formats of one scale d per 32, and maybe an offset m: [fma(m, sum, acc)], then fma(integer sum, d * scale, acc)."""

    def expected(raw: NDArray[np.uint8], acts: Activations) -> Floats:
        q, d, m = take(raw.reshape(len(raw), -1, size))
        dots, acc = _dots(q, acts), np.zeros((len(acts.values), len(raw)), np.float32)
        for g in range(q.shape[1]):
            if m is not None:
                acc = fma(m[:, g], acts.sums[:, g : g + 1], acc)
            acc = fma(dots[:, :, g], d[:, g] * acts.scales[:, g : g + 1], acc)
        return acc

    return expected


def _take_q5_0(b: NDArray[np.uint8]) -> tuple[Any, Floats, Floats | None]:
    high = np.unpackbits(b[..., 2:6], axis=-1, bitorder="little")
    return _nibbles(b[..., 6:]).astype(np.int8) + 16 * high.astype(np.int8) - 16, _half(b[..., :2]), None


def _q4_k(raw: NDArray[np.uint8], acts: Activations) -> Floats:
    from edgellm.kernels.formats.q4_k import scales_and_mins

    b = raw.reshape(len(raw), -1, 144)
    n, supers, _ = b.shape
    pairs = [scales_and_mins(b[:, i, 4:16]) for i in range(supers)]
    scale, minimum = (np.stack([pair[j] for pair in pairs], 1).reshape(n, -1).astype(np.int64) for j in (0, 1))
    dots = _dots(_nibbles(b[..., 16:].reshape(n, -1, 32)).reshape(n, -1, 32), acts) * scale
    acc = np.zeros((len(acts.values), n), np.float32)
    for i in range(supers):
        s, u = np.zeros_like(acc), np.zeros_like(acc)
        for g in range(8 * i, 8 * i + 8):
            s = fma(dots[:, :, g], acts.scales[:, g : g + 1], s)
            u = fma(minimum[:, g], acts.sums[:, g : g + 1], u)
        acc = fma(_half(b[:, i, 0:2]), s, acc)
        acc = fma(-_half(b[:, i, 2:4]), u, acc)
    return acc


def _q6_k(raw: NDArray[np.uint8], acts: Activations) -> Floats:
    b = raw.reshape(len(raw), -1, 210)
    n, supers, _ = b.shape
    low = _nibbles(b[..., :128].reshape(n, -1, 64)).reshape(n, -1, 16)
    high = np.stack([b[..., 128:192].reshape(n, -1, 32) >> shift & 3 for shift in (0, 2, 4, 6)], 2).reshape(n, -1, 16)
    q = (low | high << 4).astype(np.int64) - 32
    scale = np.ascontiguousarray(b[..., 192:208]).view(np.int8).reshape(n, -1, 1).astype(np.int64)
    dots = _dots((q * scale).reshape(n, -1, 32), acts)
    acc = np.zeros((len(acts.values), n), np.float32)
    for i in range(supers):
        s = np.zeros_like(acc)
        for g in range(8 * i, 8 * i + 8):
            s = fma(dots[:, :, g], acts.scales[:, g : g + 1], s)
        acc = fma(_half(b[:, i, 208:210]), s, acc)
    return acc


def _q5_1(raw: NDArray[np.uint8], acts: Activations) -> Floats:
    b = raw.reshape(len(raw), -1, 24)
    q = _nibbles(b[..., 8:]).astype(np.int64) + 16 * np.unpackbits(b[..., 4:8], axis=-1, bitorder="little") - 16
    d, m, dots = _half(b[..., :2]), _half(b[..., 2:4]), _dots(q, acts)
    acc = np.zeros((len(acts.values), len(raw)), np.float32)
    for g in range(q.shape[1]):
        acc = fma(m[:, g], acts.sums[:, g : g + 1], acc)
        acc = fma(16 * d[:, g], acts.sums[:, g : g + 1], acc)
        acc = fma(dots[:, :, g], d[:, g] * acts.scales[:, g : g + 1], acc)
    return acc


def _q5_k(raw: NDArray[np.uint8], acts: Activations) -> Floats:
    from edgellm.kernels.formats.q4_k import scales_and_mins

    b = raw.reshape(len(raw), -1, 176)
    n, supers, _ = b.shape
    pairs = [scales_and_mins(b[:, i, 4:16]) for i in range(supers)]
    scale, minimum = (np.stack([pair[j] for pair in pairs], 1).reshape(n, -1).astype(np.int64) for j in (0, 1))
    high = np.stack([b[..., 16:48] >> g & 1 for g in range(8)], 2).reshape(n, -1, 32).astype(np.int64)
    q = _nibbles(b[..., 48:].reshape(n, -1, 32)).reshape(n, -1, 32) + 16 * high - 16
    dots = _dots(q, acts) * scale
    acc = np.zeros((len(acts.values), n), np.float32)
    for i in range(supers):
        s, u = np.zeros_like(acc), np.zeros_like(acc)
        for g in range(8 * i, 8 * i + 8):
            s = fma(16 * scale[:, g], acts.sums[:, g : g + 1], s)
            s = fma(dots[:, :, g], acts.scales[:, g : g + 1], s)
            u = fma(minimum[:, g], acts.sums[:, g : g + 1], u)
        acc = fma(_half(b[:, i, 0:2]), s, acc)
        acc = fma(-_half(b[:, i, 2:4]), u, acc)
    return acc


_EXPECTED = {
    "Q4_0": _simple(lambda b: (_nibbles(b[..., 2:]).astype(np.int8) - 8, _half(b[..., :2]), None), 18),
    "Q5_1": _q5_1,
    "Q5_K": _q5_k,
    "Q4_1": _simple(lambda b: (_nibbles(b[..., 4:]), _half(b[..., :2]), _half(b[..., 2:4])), 20),
    "Q5_0": _simple(_take_q5_0, 22),
    "Q8_0": _simple(lambda b: (b[..., 2:].view(np.int8), _half(b[..., :2]), None), 34),
    "Q4_K": _q4_k,
    "Q6_K": _q6_k,
    **make_expected(fma),
}
assert set(_EXPECTED) == set(INT8_FORMATS), "a new format needs its order of float operations here"
