"""Attention through a small program on the CPU backend: against reference.py, and the same bits however it is cut.

The cache holds no numbers where nothing was written or reach has ended, its blocks lie in random order, and the last
value read shows any of them.
"""

from __future__ import annotations

import cpu_kernels as cpu
import cpu_programs as programs
import numpy as np
import pytest

from edgellm.kernels import reference
from edgellm.kernels.ops import Builder, CacheLayer, Program

VOCAB, HIDDEN = 40, 32


def make_program(
    heads: int, kv_heads: int, dim: int, window: int | None = None, layers: int = 1
) -> tuple[Program, programs.MemorySource]:
    """embed, q, k, v, attention, output; several layers alternate between a window and everything."""
    rng, source, b = np.random.default_rng((heads, kv_heads, dim)), programs.MemorySource(), Builder()

    def matrix(name: str, rows: int, columns: int, size: float = 1.0) -> str:
        return source.put(name, (rng.standard_normal((rows, columns)) * size / columns**0.5).astype(np.float32))

    x = b.embed(matrix("table", VOCAB, HIDDEN, HIDDEN**0.5), HIDDEN)
    for i in range(layers):
        layer = CacheLayer(kv_heads, dim, window if i % 2 == 0 else None)
        q = b.linear(x, matrix(f"q{i}", heads * dim, HIDDEN, 1.5), heads * dim)
        k = b.linear(x, matrix(f"k{i}", kv_heads * dim, HIDDEN, 1.5), kv_heads * dim)
        v = b.linear(x, matrix(f"v{i}", kv_heads * dim, HIDDEN), kv_heads * dim)
        attended = b.attention(q, k, v, heads, layer, dim**-0.5)
        x = b.add(x, b.linear(attended, matrix(f"o{i}", HIDDEN, heads * dim), HIDDEN))
    out = b.linear(b.logit_rows(x), matrix("out", VOCAB, HIDDEN), VOCAB)
    return b.finish(out), source


def make_ids(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((count, seed)).integers(0, VOCAB, count).astype(np.int32)


def expected(program: Program, source: programs.MemorySource, ids: np.ndarray) -> np.ndarray:
    weights = programs.dequantised(program, source)
    with programs.rounding_as_the_cpu(source, weights):
        return reference.run(program, weights, ids)


@pytest.mark.parametrize("dim", [8, 16, 24, 32, 40, 64, 80, 96, 128, 256])
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (6, 2), (8, 1)])
def test_head_sizes(heads: int, kv_heads: int, dim: int) -> None:
    program, source = make_program(heads, kv_heads, dim)
    ids = make_ids(150)
    with programs.Machine(program, source, 192) as machine:
        whole = machine.logits(ids)[0]
        pieces = machine.logits(ids, chunk=9)[0]
    programs.assert_close(whole, expected(program, source, ids))
    assert np.array_equal(whole, pieces)


@pytest.mark.parametrize("shared", range(1, 9))
def test_shared_heads(shared: int) -> None:
    program, source = make_program(2 * shared, 2, 32)
    ids = make_ids(100)
    with programs.Machine(program, source, 128) as machine:
        whole, steps = machine.logits(ids)[0], machine.logits(ids, chunk=1)[0]
    programs.assert_close(whole, expected(program, source, ids))
    assert np.array_equal(whole, steps)


@pytest.mark.parametrize("window", [1, 5, 64, 65, 200, 600, None])
def test_windows_over_tiles_and_splits(window: int | None) -> None:
    program, source = make_program(4, 2, 16, window, layers=2)
    ids = make_ids(580)
    want = expected(program, source, ids)
    for level, chunks in zip(cpu.get_available_levels(), [(1, 8, 63, 64, 257), (9, 64)], strict=False):
        with programs.Machine(program, source, 640, level=level) as machine:
            results = {chunk: machine.logits(ids, chunk=chunk)[0] for chunk in (512, *chunks)}
        programs.assert_close(results[512], want)
        for chunk, got in results.items():
            assert np.array_equal(got, results[512]), f"chunks of {chunk}"


def test_every_batch_of_several_sequences() -> None:
    program, source = make_program(6, 2, 24, 65, layers=3)
    sequences = [make_ids(n, seed) for seed, n in enumerate((300, 70, 1, 129))]
    for threads in (1, 3):
        with programs.Machine(program, source, 320, num_threads=threads, max_tokens=1200) as machine:
            alone = [machine.logits(s)[0] for s in sequences]
            for chunk in (1, 3, 8, 9, 100, 300):
                together = machine.logits(*sequences, chunk=chunk)
                assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True)), chunk
    for got, ids in zip(alone, sequences, strict=True):
        # One token differs by 2e-7; in three layers K and V fall to the other half here and there, 5e-4 of a value each.
        programs.assert_close(got, expected(program, source, ids), usual=2e-4 if len(ids) > 1 else 1e-6)


def test_batches_of_mixed_kind() -> None:
    """Decode of one sequence beside prefill of another, at unlike depths, as a scheduler makes them."""
    program, source = make_program(4, 1, 64, 200, layers=2)
    a, b = make_ids(290), make_ids(270, 1)
    with programs.Machine(program, source, 320) as machine:
        alone_a, alone_b = machine.logits(a)[0], machine.logits(b)[0]
        machine.cache.clear()
        got_a, got_b = machine.step([(0, 0, a[:250])]), []
        for i in range(40):
            start, end = 7 * i, min(7 * i + 7, 270)
            works = [(0, 250 + i, a[250 + i : 251 + i]), (2, start, b[start:end])]
            done = machine.step(works if start < end else works[:1])
            got_a.append(done[0])
            got_b += done[1:]
    assert np.array_equal(np.concatenate(got_a), alone_a)
    assert np.array_equal(np.concatenate(got_b), alone_b)


def test_sharp_and_flat_scores() -> None:
    """One token takes everything, or all count the same: far from where exp is comfortable."""
    for size in (0.0, 30.0):
        program, source = make_program(2, 1, 32)
        for name in ("q0", "k0"):
            values = source.data(name).view(np.float32).reshape(source.tensors[name].shape)
            source.put(name, values * np.float32(size))
        ids = make_ids(270)
        with programs.Machine(program, source, 320) as machine:
            got = machine.logits(ids, chunk=100)[0]
        # Scores of hundreds: float32 rounds them by 1e-5, and so the weights.
        programs.assert_close(got, expected(program, source, ids), most=1e-3 if size == 0 else 0.02)
