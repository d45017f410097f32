"""Call compiled CPU kernels one by one. What they must give, down to the last bit, is in expected_products.py.

Kernels come from the user's own cache of compiled ones, so a second run compiles nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from expected_products import Activations
from numpy.typing import NDArray

from edgellm import paths
from edgellm.kernels import formats
from edgellm.kernels.cpu import cache_kernels, isa, lower, objects, slots, threads, vocabulary, weights
from edgellm.kernels.cpu.memory import address, aligned
from edgellm.kernels.cpu.panels import panel_bytes, panel_layout

Floats = NDArray[np.float32]
TILE_TOKENS = (1, 2, 4)
PANELS = 0
"""In place of the tokens of a tile: multiply by panels."""
WAYS_TO_MULTIPLY = (*TILE_TOKENS, PANELS)
FORMAT_NAMES = tuple(formats.FORMATS)
INT8_FORMATS = tuple(n for n, f in formats.FORMATS.items() if f.packed.activation == "q8")
ALL_KERNELS = (
    *threads.KERNELS,
    *lower.KERNELS,
    *vocabulary.KERNELS,
    *(name for form in cache_kernels.FORMATS for name in cache_kernels.names(form, form).values()),
    "pack_matrix",
    *(f"{kind}_{n.lower()}" for n in FORMAT_NAMES for kind in ("pack", "expand")),
    *(kernel for n in FORMAT_NAMES for kernel in weights.linear_kernels(formats.get(n))),
)


def get_level(name: str) -> isa.Level:
    """The level of that name; skips the test where this machine lacks it."""
    level = isa.get_level(name)
    lacks = isa.missing(level, isa.architecture(), isa.host_features())
    if lacks:
        pytest.skip(f"this machine lacks {lacks}, which the level {name} needs")
    return level


def get_available_levels() -> list[str]:
    """Names of the levels that this machine has; test_other_machines.py sees to the others."""
    features = isa.host_features()
    return [lv.name for lv in isa.LEVELS if not isa.missing(lv, isa.architecture(), features)]


LEVEL_NAMES = tuple(get_available_levels())


@functools.cache
def get_kernels(level: str) -> Mapping[str, int]:
    """Addresses of all kernels of a level."""
    return objects.addresses(ALL_KERNELS, get_level(level), paths.home() / "kernels")


def get_cache_kernel(level: str, part: str, name: str) -> Callable[..., None]:
    """One of a cache format's kernels, to be called with the operands that cache_kernels.py lists."""
    function: Callable[..., None] = threads.tile_function(cache_kernels.OPERANDS[part])(
        get_kernels(level)[f"{part}_{name}"]
    )
    return function


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
def write_tiles(level: str, x: Floats, tokens: int, parts: int = 1) -> NDArray[np.uint8]:
    """Quantise rows f32[T, K], in `parts` each: activation tiles of `tokens` rows. -> u8[tiles, K / 32, 48 tokens]."""
    groups, tiles = x.shape[1] // 32, -(-parts * len(x) // tokens)
    out = aligned(tiles * groups * 48 * tokens)
    rows = make_rows(x)
    arguments = [address(rows), rows.strides[0], address(out), groups, slots.QUANTISE, tokens, parts]
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
    if tokens == PANELS and not formats.get(name).packed.panels:
        tokens = 4
    if tokens == PANELS:
        return _panel_product(level, name, raw, x, into)
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


def _panel_product(level: str, name: str, raw: NDArray[np.uint8], x: Floats, into: Floats | None) -> Floats:
    """The same by unpack and panel kernels, sixteen rows at a time."""
    packed, kernels, matrix = formats.get(name).packed, get_kernels(level), pack(level, name, raw, x.shape[1])
    plain, units = packed.codes is None, x.shape[1] // packed.columns
    acts, y, tokens, x_tile = _panel_operands(level, name, x, len(matrix), into)
    multiply = threads.tile_function(7)(kernels[f"panel_{name.lower()}"])
    for g in range(0, len(matrix), 2):
        at, gap = address(matrix[g]), matrix.strides[0] * (g + 1 < len(matrix))
        if not plain:
            panel = aligned(panel_bytes(packed, units))
            unpack = threads.tile_function(3)(kernels[f"unpack_{name.lower()}"])
            for r in range(2):
                unpack(at + r * gap, address(panel) + r * panel_layout(packed).unit, units)
            at = address(panel)
        for t in range(len(y) // tokens):
            to = address(y) + t * tokens * y.strides[0] + 32 * g
            multiply(at, address(acts) + t * x_tile, units, to, y.strides[0], int(into is not None), gap)
    return y[: len(x), : len(raw)].copy()


def _panel_operands(
    level: str, name: str, x: Floats, groups: int, into: Floats | None
) -> tuple[NDArray[Any], Floats, int, int]:
    """-> activations, results, tokens of a tile, bytes of a tile of activations; rows of both are rounded up to twelve."""
    rows, plain = -(-len(x) // 12) * 12, formats.get(name).packed.codes is None
    padded = np.concatenate([x, np.zeros((rows - len(x), x.shape[1]), np.float32)])
    y = np.zeros((rows, 8 * groups), np.float32)
    if into is not None:
        y[: len(x), : into.shape[1]] = into
    acts: NDArray[Any] = make_rows(padded) if plain else write_tiles(level, padded, 4)
    return acts, make_rows(y), 3 if plain else 4, acts.strides[0] * (3 if plain else 1)


def many_tokens(level: str, name: str, raw: NDArray[np.uint8], x: Floats, is_raw: bool) -> Floats:
    """x f32[T, K] times a matrix, packed or raw, by the chunk kernel for many tokens, in two chunks. -> f32[T, N]."""
    packed, kernels, matrix = formats.get(name).packed, get_kernels(level), pack(level, name, raw, x.shape[1])
    units, low = x.shape[1] // packed.columns, name.lower()
    acts, y, tokens, x_tile = _panel_operands(level, name, x, len(matrix), None)
    bounds = np.array([0, 2, len(matrix)], np.int64)
    source = make_copy(raw) if is_raw else matrix
    arguments = [address(source), address(acts), address(y), 2, units, address(bounds), 0, matrix.strides[0]]
    arguments += [y.strides[0], kernels[f"panel_{low}"], x_tile, tokens, 2, slots.TOKENS]
    arguments += [kernels[f"pack_{low}"] if is_raw else 0, raw.shape[1], len(raw)]
    if packed.codes is not None:
        arguments += [kernels[f"unpack_{low}"], panel_bytes(packed, units), panel_layout(packed).unit]
    call(level, "matmul_panels", arguments, [1, 0], {slots.TOKENS: len(x)})
    return y[: len(x), : len(raw)].copy()
