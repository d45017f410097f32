"""Run programs on the CPU backend from weights in memory, cut into batches in any way, with a cache full of traps."""

from __future__ import annotations

import math
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
from edgellm.cache.states import StateCache
from edgellm.cache.tree import ROOT_KEY
from edgellm.kernels import cache_formats, formats, reference
from edgellm.kernels.cache_formats import base
from edgellm.kernels.cache_layout import BLOCK_SIZE
from edgellm.kernels.cpu.backend import CpuBackend
from edgellm.kernels.cpu.memory import address, aligned
from edgellm.kernels.ops import Batch, CacheLayer, Program, StateLayer

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

    Blocks of a window layer that fell out of reach are handed out again, as `KVCache` does. chunk: most tokens of a
    sequence in a batch, which makes the tables of window layers rings; None: a column for every tile.
    """

    def __init__(
        self,
        layers: Sequence[CacheLayer],
        max_context: int,
        max_sequences: int,
        formats: tuple[str, str] = ("f16", "f16"),
        chunk: int | None = None,
        state_layers: Sequence[StateLayer] = (),
    ) -> None:
        self.layers, self.formats = layers, formats
        self.states = StateCache(state_layers, max_sequences, ROOT_KEY) if state_layers else None
        for sequence in range(max_sequences if state_layers else 0):
            self._begin(sequence)
        self._reaches = list(dict.fromkeys((layer.window, layer.num_sink_tokens) for layer in layers))
        self.group_of_layer = tuple(self._reaches.index((layer.window, layer.num_sink_tokens)) for layer in layers)
        tiles, groups = -(-max_context // BLOCK_SIZE), range(len(self._reaches))
        self.columns_of_group = tuple(self._columns(window, sinks, chunk, tiles) for window, sinks in self._reaches)
        self.tables = tuple(np.full((max_sequences, sum(c)), -1, np.int32) for c in self.columns_of_group)
        sizes = [self._tile_bytes(layer) for layer in layers]
        self.block_bytes_of_group = tuple(
            sum(sum(size) for size, own in zip(sizes, self.group_of_layer, strict=True) if own == group)
            for group in groups
        )
        count, rng = tiles * max_sequences + 3, np.random.default_rng(0)
        self._free = [rng.permutation(count).tolist() for _ in groups]
        self._held: list[dict[tuple[int, int], int]] = [{} for _ in groups]  # (sequence, tile) -> block
        self._blocks = [aligned(count * size).reshape(count, -1) for size in self.block_bytes_of_group]
        for blocks in self._blocks:
            blocks[:] = _TRAP

    @staticmethod
    def _columns(window: int | None, sinks: int, chunk: int | None, tiles: int) -> tuple[int, int]:
        if window is None or chunk is None:
            return tiles, 1
        return -(-sinks // BLOCK_SIZE), (window + chunk + BLOCK_SIZE - 2) // BLOCK_SIZE + 1

    def _tile_bytes(self, layer: CacheLayer) -> tuple[int, int]:
        k, v = (cache_formats.get(name) for name in self.formats)
        k_dim, v_dim = layer.dims
        return layer.num_kv_heads * k.k_tile_bytes(k_dim), layer.num_kv_heads * v.v_tile_bytes(v_dim)

    def address(self, layer: int) -> tuple[int, int]:
        group = self.group_of_layer[layer]
        before = (
            self._tile_bytes(x)
            for x, own in zip(self.layers[:layer], self.group_of_layer, strict=False)
            if own == group
        )
        first = address(self._blocks[group]) + sum(map(sum, before))
        return first, first + self._tile_bytes(self.layers[layer])[0]

    def _column(self, group: int, tile: int) -> int:
        kept, ring = self.columns_of_group[group]
        return tile if tile < kept else kept + (tile - kept) % ring

    def reserve(self, sequence: int, first: int, end: int) -> None:
        """Make positions first..end-1 have a place; what position `first` no longer reaches is trapped and freed."""
        for group, (window, sinks) in enumerate(self._reaches):
            held, table = self._held[group], self.tables[group]
            reached = 0 if window is None else max(0, first - window + 1) // BLOCK_SIZE
            for tile in sorted(t for s, t in held if s == sequence and -(-sinks // BLOCK_SIZE) <= t < reached):
                self._release(group, sequence, tile)
            for tile in range(first // BLOCK_SIZE, -(-end // BLOCK_SIZE)):
                if (sequence, tile) not in held:
                    block = held[sequence, tile] = self._free[group].pop()
                    assert table[sequence, self._column(group, tile)] < 0, "the ring is too short"
                    table[sequence, self._column(group, tile)] = block

    def _begin(self, sequence: int) -> None:
        assert self.states is not None
        for record in range(1, self.states.num_records):  # what is not written is no number either
            self.states.write(record, bytes([_TRAP]) * self.states.record_bytes)
        self.states.close(sequence)
        self.states.open(sequence, 0, 0)

    def clear(self) -> None:
        """Forget all sequences."""
        for sequence in range(len(self.states.reads) if self.states is not None else 0):
            self._begin(sequence)
        for group, held in enumerate(self._held):
            for sequence, tile in list(held):
                self._release(group, sequence, tile)

    def _release(self, group: int, sequence: int, tile: int) -> None:
        block = self._held[group].pop((sequence, tile))
        self.tables[group][sequence, self._column(group, tile)] = -1
        self._blocks[group][block] = _TRAP
        self._free[group].insert(0, block)


class Machine:
    """A backend and its cache: `logits` of sequences, cut into batches as told."""

    def __init__(self, program: Program, source: Any, max_context: int, max_sequences: int = 4, **options: Any) -> None:
        level = options.pop("level", None)
        cache_options = {name: options.pop(name) for name in ("formats", "chunk") if name in options}
        cache_options["state_layers"] = program.state_layers
        self.cache = TrapCache(program.cache_layers, max_context, max_sequences, **cache_options)
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

    def step(
        self, works: Sequence[tuple[int, int, NDArray[np.int32]]], every: int = 1, guessed: int = 0
    ) -> list[Floats]:
        """Run one batch of (sequence, first position, ids). -> by sequence the logits of positions 0, every ...

        guessed: so many of the ids are guesses, after each of which states are written.
        """
        for sequence, first, ids in works:
            self.cache.reserve(sequence, first, first + len(ids))
        sequences = np.repeat(np.array([s for s, _, _ in works], np.int32), [len(ids) for _, _, ids in works])
        positions = np.concatenate([np.arange(p, p + len(ids), dtype=np.int64) for _, p, ids in works])
        wanted = np.flatnonzero(positions % every == 0).astype(np.int32)
        states, none = self.cache.states, np.zeros(0, np.int32)
        writes = none if states is None else _plan(states, works, guessed)
        batch = Batch(
            token_ids=np.concatenate([ids for _, _, ids in works]),
            positions=positions,
            sequences=sequences,
            block_tables=self.cache.tables,
            logit_rows=wanted,
            state_reads=none if states is None else states.reads,
            state_writes=writes,
        )
        logits = self.backend.run(batch).copy()
        return [logits[sequences[wanted] == sequence] for sequence, _, _ in works]

    def close(self) -> None:
        self.backend.close()

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _plan(states: StateCache, works: Sequence[tuple[int, int, NDArray[np.int32]]], guessed: int) -> NDArray[np.int32]:
    return np.concatenate([states.plan(s, p, len(ids) - guessed, guessed) for s, p, ids in works])


# ---- what it must be ----
def dequantised(program: Program, source: Any) -> dict[str, Floats]:
    """All weights of a program as float32."""
    weights = {}
    for name in {name for op in program.ops for name in op.weights}:
        info = source.tensors[name]
        rows = source.data(name).reshape(math.prod(info.shape[:-1]), -1)
        weights[name] = formats.get(info.type_name).dequantize(rows).reshape(info.shape)
    return weights


@contextmanager
def rounding_as_the_cpu(
    source: Any, weights: Mapping[str, Floats], formats: tuple[str, str] = ("f16", "f16")
) -> Iterator[None]:
    """Let reference.py round where the CPU backend is meant to: K and V as the cache, what integer kernels read to int8."""
    attention, linear = reference.attention, reference.linear
    reads_int8 = {id(w) for n, w in weights.items() if source.tensors[n].type_name in cpu.INT8_FORMATS}

    def rounded_linear(x: Floats, weight: Floats, bias: Floats | None = None) -> Floats:
        if id(weight) in reads_int8:
            acts = oracle.quantised(x)
            x = (acts.values * acts.scales[..., None]).reshape(x.shape)
        return linear(x, weight, bias)

    def rounded_attention(
        q: Floats, k: Floats, v: Floats, heads: int, layer: CacheLayer, *rest: Any, **named: Any
    ) -> Floats:
        k_kind, v_kind = (cache_formats.get(name) for name in formats)
        k, v = (through_tiles(*operands) for operands in zip((k_kind.k, v_kind.v), (k, v), layer.dims, strict=True))
        return attention(q, k, v, heads, layer, *rest, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "linear", rounded_linear)
        patch.setattr(reference, "attention", rounded_attention)
        yield


def through_tiles(tiles: base.Tiles, x: Floats, dim: int) -> Floats:
    """f32[T, G * D] as it comes back from a cache's tiles."""
    out, room = np.empty_like(x), np.zeros(tiles.tile_bytes(dim), np.uint8)
    for g in range(0, x.shape[1], dim):
        for first in range(0, len(x), BLOCK_SIZE):
            some = x[first : first + BLOCK_SIZE, g : g + dim]
            for slot, row in enumerate(some):
                tiles.write(room, slot, np.ascontiguousarray(row))
            out[first : first + BLOCK_SIZE, g : g + dim] = tiles.read(room, dim)[: len(some)]
    return out


def row_errors(got: Floats, want: Floats) -> NDArray[np.float64]:
    """Each row's distance, relative to the rows' usual length."""
    distance = np.linalg.norm(got.astype(np.float64) - want, axis=-1)
    return distance / np.sqrt(np.mean(np.linalg.norm(want.astype(np.float64), axis=-1) ** 2))


def assert_close(got: Floats, want: Floats, usual: float = 1e-4, most: float = 1e-3) -> None:
    """Sums in another order differ a little, and make a value be rounded to the other half or integer here and there."""
    assert got.shape == want.shape and np.isfinite(got).all(), "not finite: something that was never written was read"
    errors = row_errors(got, want)
    assert np.median(errors) < usual and errors.max() < most, (float(np.median(errors)), float(errors.max()))
