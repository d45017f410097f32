"""Run programs on the CPU backend from weights in memory, cut into batches in any way, with a cache full of traps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cpu_kernels as cpu
import expected_products as oracle
import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from numpy.typing import NDArray
from random_weights import make_random
from tiny_models import CAN_QUANTISE

from edgellm import paths
from edgellm.kernels import formats, reference
from edgellm.kernels.cache_layout import BLOCK_SIZE, k_tile_bytes, v_tile_bytes
from edgellm.kernels.cpu.backend import CpuBackend
from edgellm.kernels.cpu.memory import address, aligned
from edgellm.kernels.ops import Batch, CacheLayer, Program

Floats = NDArray[np.float32]
_TRAP = 0xFF  # a half of these bytes is no number: whoever reads one shows it


@dataclass(frozen=True)
class Tensor:
    """What is known of a weight without its bytes."""

    shape: tuple[int, ...]
    type_name: str


class MemorySource:
    """Weights in memory, as the backend asks for them. forgotten: names it gave back."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.forgotten: list[str] = []
        self._bytes: dict[str, NDArray[np.uint8]] = {}

    def put(self, name: str, values: Floats, format: str = "F32") -> str:
        """Add values, quantised where the gguf package can; other formats get random codes instead."""
        if format in CAN_QUANTISE:
            data = quants.quantize(values, GGMLQuantizationType[format])
        else:
            data = make_random(format, *values.shape, float(values.std()), np.random.default_rng(len(self._bytes)))
        self.tensors[name] = Tensor(values.shape, format)
        self._bytes[name] = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        return name

    def data(self, name: str) -> NDArray[np.uint8]:
        return self._bytes[name]

    def forget(self, name: str) -> None:
        self.forgotten.append(name)


class TrapCache:
    """A cache whose blocks lie in random order and hold no numbers until they are written.

    Blocks of a window layer that fell out of reach are handed out again, as `KVCache` does.
    """

    def __init__(self, layers: Sequence[CacheLayer], max_context: int, max_sequences: int, seed: int = 0) -> None:
        reaches = list(dict.fromkeys((layer.window, layer.num_sink_tokens) for layer in layers))
        self.layers, windows = layers, [window for window, _ in reaches]
        self.group_of_layer = tuple(reaches.index((layer.window, layer.num_sink_tokens)) for layer in layers)
        tiles = -(-max_context // BLOCK_SIZE)
        self.formats = ("f16", "f16")
        self.columns_of_group = ((tiles, 1),) * len(reaches)
        self._kept = [-(-sinks // BLOCK_SIZE) for _, sinks in reaches]
        count, rng = tiles * max_sequences + 3, np.random.default_rng(seed)
        self._windows = windows
        self._free = [rng.permutation(count).tolist() for _ in windows]
        self.tables = tuple(np.full((max_sequences, tiles), -1, np.int32) for _ in windows)
        self.block_bytes_of_group = tuple(
            sum(self._layer_bytes(i) for i, g in enumerate(self.group_of_layer) if g == group)
            for group in range(len(reaches))
        )
        self._blocks = [aligned(count * size).reshape(count, -1) for size in self.block_bytes_of_group]
        for blocks in self._blocks:
            blocks[:] = _TRAP

    def _layer_bytes(self, i: int) -> int:
        layer = self.layers[i]
        return layer.num_kv_heads * (k_tile_bytes(layer.head_dim) + v_tile_bytes(layer.head_dim))

    def address(self, layer: int) -> tuple[int, int]:
        group = self.group_of_layer[layer]
        first = address(self._blocks[group])
        first += sum(self._layer_bytes(i) for i in range(layer) if self.group_of_layer[i] == group)
        return first, first + self.layers[layer].num_kv_heads * k_tile_bytes(self.layers[layer].head_dim)

    def reserve(self, sequence: int, first: int, end: int) -> None:
        """Make positions first..end-1 have a place; what position `first` no longer reaches is trapped and freed."""
        for group, window in enumerate(self._windows):
            row = self.tables[group][sequence]
            for tile in range(self._kept[group], 0 if window is None else max(0, first - window + 1) // BLOCK_SIZE):
                if window is not None and row[tile] >= 0:
                    self._release(group, int(row[tile]))
                    row[tile] = -1
            for tile in range(first // BLOCK_SIZE, -(-end // BLOCK_SIZE)):
                if row[tile] < 0:
                    row[tile] = self._free[group].pop()

    def clear(self) -> None:
        """Forget all sequences."""
        for group, table in enumerate(self.tables):
            for row in table:
                for block in row[row >= 0].tolist():
                    self._release(group, block)
            table[:] = -1

    def _release(self, group: int, block: int) -> None:
        self._blocks[group][block] = _TRAP
        self._free[group].insert(0, block)


class Machine:
    """A backend and its cache: `logits` of sequences, cut into batches as told."""

    def __init__(self, program: Program, source: Any, max_context: int, max_sequences: int = 4, **options: Any) -> None:
        level = options.pop("level", None)
        self.cache = TrapCache(program.cache_layers, max_context, max_sequences)
        self.backend = CpuBackend(
            program,
            source,
            self.cache,
            objects_folder=paths.home() / "kernels",
            max_context=max_context,
            max_sequences=max_sequences,
            level=None if level is None else cpu.get_level(level),
            **{"num_threads": 1, "max_tokens": 512} | options,
        )

    def logits(self, *sequences: Sequence[int], chunk: int = 512, every: int = 1) -> list[Floats]:
        """Run sequences together, `chunk` tokens of each at a time. -> f32[T, V] of each, every n-th position's logits."""
        self.cache.clear()
        ids = [np.asarray(s, np.int32) for s in sequences]
        rows: list[list[Floats]] = [[] for _ in ids]
        for start in range(0, max(map(len, ids)), chunk):
            shares = [(i, s[start : start + chunk]) for i, s in enumerate(ids) if start < len(s)]
            done = self.step([(i, start, share) for i, share in shares], every)
            for (i, _), part in zip(shares, done, strict=True):
                rows[i].append(part)
        return [np.concatenate(r) for r in rows]

    def step(self, works: Sequence[tuple[int, int, NDArray[np.int32]]], every: int = 1) -> list[Floats]:
        """Run one batch of (sequence, first position, ids). -> by sequence the logits of positions 0, every ..."""
        for sequence, first, ids in works:
            self.cache.reserve(sequence, first, first + len(ids))
        sequences = np.repeat(np.array([s for s, _, _ in works], np.int32), [len(ids) for _, _, ids in works])
        positions = np.concatenate([np.arange(p, p + len(ids), dtype=np.int64) for _, p, ids in works])
        wanted = np.flatnonzero(positions % every == 0).astype(np.int32)
        batch = Batch(
            token_ids=np.concatenate([ids for _, _, ids in works]),
            positions=positions,
            sequences=sequences,
            block_tables=self.cache.tables,
            logit_rows=wanted,
        )
        logits = self.backend.run(batch).copy()
        return [logits[sequences[wanted] == sequence] for sequence, _, _ in works]

    def close(self) -> None:
        self.backend.close()

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- what it must be ----
def dequantised(program: Program, source: Any) -> dict[str, Floats]:
    """All weights of a program as float32."""
    weights = {}
    for name in {name for op in program.ops for name in op.weights}:
        info = source.tensors[name]
        rows = source.data(name).reshape(info.shape[0] if len(info.shape) > 1 else 1, -1)
        weights[name] = formats.get(info.type_name).dequantize(rows).reshape(info.shape)
    return weights


@contextmanager
def rounding_as_the_cpu(source: Any, weights: Mapping[str, Floats]) -> Iterator[None]:
    """Let reference.py round where the CPU backend is meant to: K and V to halves, what integer kernels read to int8."""
    attention, linear = reference.attention, reference.linear
    reads_int8 = {id(w) for n, w in weights.items() if source.tensors[n].type_name in cpu.INT8_FORMATS}

    def half(x: Floats) -> Floats:
        return x.astype(np.float16).astype(np.float32)

    def rounded_linear(x: Floats, weight: Floats, bias: Floats | None = None) -> Floats:
        if id(weight) in reads_int8:
            acts = oracle.quantised(x)
            x = (acts.values * acts.scales[..., None]).reshape(x.shape)
        return linear(x, weight, bias)

    def rounded_attention(q: Floats, k: Floats, v: Floats, *rest: Any, **options: Any) -> Floats:
        return attention(q, half(k), half(v), *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "linear", rounded_linear)
        patch.setattr(reference, "attention", rounded_attention)
        yield


def row_errors(got: Floats, want: Floats) -> NDArray[np.float64]:
    """Each row's distance, relative to the rows' usual length."""
    distance = np.linalg.norm(got.astype(np.float64) - want, axis=-1)
    return distance / np.sqrt(np.mean(np.linalg.norm(want.astype(np.float64), axis=-1) ** 2))


def assert_close(got: Floats, want: Floats, usual: float = 1e-4, most: float = 1e-3) -> None:
    """Sums in another order differ a little, and make a value be rounded to the other half or integer here and there."""
    assert got.shape == want.shape and np.isfinite(got).all(), "not finite: something that was never written was read"
    errors = row_errors(got, want)
    assert np.median(errors) < usual and errors.max() < most, (float(np.median(errors)), float(errors.max()))
