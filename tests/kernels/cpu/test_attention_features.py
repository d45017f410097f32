"""What attention can beside the plain case: caps, learned sinks, sink tokens, cache formats, odd heads, tables that are rings.

Each against reference.py, which rounds K and V as the cache does, and with the same bits however it is cut.
"""

from __future__ import annotations

from typing import Any

import cpu_kernels as cpu
import cpu_programs as programs
import numpy as np
import pytest

from edgellm.kernels import cache_formats, reference
from edgellm.kernels.cpu import tasks
from edgellm.kernels.ops import Builder, CacheLayer, HeadPart, Program

VOCAB, HIDDEN = 40, 32
FLOAT_FORMATS = ("f16", "bf16", "e4m3", "e5m2")
ALL_FORMATS = tuple(cache_formats.FORMATS)


def make_program(
    heads: int, layer: CacheLayer, *, softcap: float = 0.0, sinks: bool = False, sink_q: bool = False, layers: int = 2
) -> tuple[Program, programs.MemorySource]:
    """embed, attention, output; the first layer sees everything, the others are `layer`."""
    kv, (dim, v_dim) = layer.num_kv_heads, layer.dims
    rng, source, b = np.random.default_rng((heads, kv, dim)), programs.MemorySource(), Builder()

    def matrix(name: str, rows: int, columns: int, size: float = 1.0) -> str:
        return source.put(name, (rng.standard_normal((rows, columns)) * size / columns**0.5).astype(np.float32))

    x = b.embed(matrix("table", VOCAB, HIDDEN, HIDDEN**0.5), HIDDEN)
    for i in range(layers):
        own = layer if i else CacheLayer(kv, dim, value_dim=layer.value_dim)
        q, k, v = (
            b.linear(x, matrix(f"{n}{i}", width, HIDDEN, 1.4), width)
            for n, width in (("q", heads * dim), ("k", kv * dim), ("v", kv * v_dim))
        )
        options: dict[str, Any] = {"softcap": softcap}
        if sinks:
            options["sinks"] = source.put(f"sinks{i}", rng.normal(0, 2, heads).astype(np.float32))
        if sink_q and own.num_sink_tokens:
            options["sink_q"] = b.linear(x, matrix(f"s{i}", heads * dim, HIDDEN, 1.4), heads * dim)
        attended = b.attention(q, k, v, heads, own, 1.3 * dim**-0.5, **options)
        x = b.add(x, b.linear(attended, matrix(f"o{i}", HIDDEN, heads * v_dim), HIDDEN))
    return b.finish(b.linear(b.logit_rows(x), matrix("out", VOCAB, HIDDEN), VOCAB)), source


def make_ids(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((count, seed)).integers(0, VOCAB, count).astype(np.int32)


def check(
    program: Program,
    source: programs.MemorySource,
    ids: np.ndarray,
    chunks: tuple[int, ...] = (1, 64),
    formats: tuple[str, str] = ("f16", "f16"),
    usual: float = 1e-4,
    **options: Any,
) -> np.ndarray:
    """The logits, which are near reference.py and the same in every chunk."""
    weights = programs.dequantised(program, source)
    with programs.rounding_as_the_cpu(source, weights, formats):
        want = reference.run(program, weights, ids)
    with programs.Machine(program, source, 640, formats=formats, **options) as machine:
        got = machine.logits(ids)[0]
        for chunk in chunks:
            assert np.array_equal(machine.logits(ids, chunk=chunk)[0], got), f"chunks of {chunk}"
    # A value between two numbers of the format falls either way, which the second layer sees.
    programs.assert_close(got, want, usual, 100 * usual)
    return got


@pytest.mark.parametrize(("heads", "kv"), [(3, 3), (5, 1), (10, 2)])
@pytest.mark.parametrize("softcap", [2.0, 50.0])
def test_soft_caps(softcap: float, heads: int, kv: int) -> None:
    program, source = make_program(heads, CacheLayer(kv, 24, 90), softcap=softcap)
    got = check(program, source, make_ids(150))
    uncapped, source = make_program(heads, CacheLayer(kv, 24, 90))
    with programs.Machine(uncapped, source, 192) as machine:
        assert programs.row_errors(machine.logits(make_ids(150))[0], got).max() > 1e-3, "a cap that does nothing"


@pytest.mark.parametrize("softcap", [0.0, 20.0])
def test_learned_sinks(softcap: float) -> None:
    program, source = make_program(6, CacheLayer(2, 32, 70), sinks=True, softcap=softcap)
    check(program, source, make_ids(300), chunks=(1, 7, 64))
    source.put("sinks1", np.array([-200.0, 200, 0, 1, 30, -1], np.float32))  # nothing is left, or all is as without
    check(program, source, make_ids(100))


@pytest.mark.parametrize("own_queries", [True, False])
@pytest.mark.parametrize(("window", "sinks"), [(5, 1), (40, 64), (64, 4), (100, 33), (300, 7)])
def test_sink_tokens(window: int, sinks: int, own_queries: bool) -> None:
    program, source = make_program(6, CacheLayer(2, 40, window, sinks), sink_q=own_queries)
    ids = make_ids(330)
    got = check(program, source, ids, chunks=(1, 7, 64))
    without, source = make_program(6, CacheLayer(2, 40, window))
    with programs.Machine(without, source, 384, level=cpu.LEVEL_NAMES[-1]) as machine:
        plain = machine.logits(ids)[0]
    if not own_queries:  # the same weights: as long as no token has left a window, sinks change no bit
        assert np.array_equal(plain[:window], got[:window])
        assert not (plain[window:] == got[window:]).all(axis=1).any()


def test_rings_read_as_long_tables_do() -> None:
    """Tables of constant size, however long the sequence: chunks, neighbours and threads change nothing."""
    layer = CacheLayer(2, 32, 100, 9)
    program, source = make_program(6, layer, sink_q=True, sinks=True, layers=3)
    ids, others = make_ids(600), [make_ids(90, 1), make_ids(250, 2)]
    with programs.Machine(program, source, 640) as machine:
        long = machine.logits(ids)[0]
    for chunk, threads in ((64, 1), (30, 2), (7, 3)):
        with programs.Machine(program, source, 640, chunk=chunk, num_threads=threads) as machine:
            assert machine.cache.tables[1].shape[1] == 1 + (100 + chunk + 62) // 64 + 1
            assert np.array_equal(machine.logits(ids, chunk=chunk)[0], long)
            assert np.array_equal(machine.logits(others[0], ids, others[1], chunk=chunk)[1], long)


@pytest.mark.parametrize(("format", "usual"), [*((f, 3e-3) for f in ALL_FORMATS if f != "q4_h"), ("q4_h", 0.03)])
@pytest.mark.parametrize("layer", [CacheLayer(1, 96, 100, 4, 64), CacheLayer(2, 24, 70, value_dim=40)])
def test_values_of_another_width_than_keys(layer: CacheLayer, format: str, usual: float) -> None:
    program, source = make_program(4, layer, sink_q=True)
    check(program, source, make_ids(150), (1, 9), (format, format), usual=usual)


def test_latent_attention_of_the_widest_head() -> None:
    """Keys of 576 and values of 512, as DeepSeek has them, with the matrices of each head before and behind."""
    rng, source, b = np.random.default_rng(4), programs.MemorySource(), Builder()

    def matrix(name: str, *shape: int) -> str:
        return source.put(name, (rng.standard_normal(shape) * 1.4 / shape[-1] ** 0.5).astype(np.float32))

    heads, plain, turned, rank = 3, 32, 64, 512
    x = b.embed(matrix("table", VOCAB, HIDDEN), HIDDEN, 8.0)
    q = b.linear(x, matrix("q", heads * (plain + turned), HIDDEN), heads * (plain + turned))
    short, turning = (
        b.linear(x, matrix(n, width, HIDDEN), width) for n, width in (("short", rank), ("turning", turned))
    )
    absorbed = b.join_heads(heads, HeadPart(q, heads, 0, plain))
    absorbed = b.head_linear(absorbed, matrix("of_keys", heads, rank, plain), heads, rank)
    q = b.join_heads(heads, HeadPart(q, heads, plain, turned), HeadPart(absorbed, heads, 0, rank))
    k = b.join_heads(1, HeadPart(turning, 1, 0, turned), HeadPart(short, 1, 0, rank))
    y = b.attention(q, k, short, heads, CacheLayer(1, turned + rank, value_dim=rank), 0.05)
    y = b.head_linear(y, matrix("of_values", heads, 40, rank), heads, 40)
    y = b.linear(y, matrix("out", HIDDEN, heads * 40), HIDDEN)
    program = b.finish(b.linear(b.logit_rows(b.add(x, y)), matrix("logits", VOCAB, HIDDEN), VOCAB))
    for format, usual in (("f16", 1e-4), ("i16", 1e-3), ("q8_0", 3e-3), ("q4_h", 0.03)):
        check(program, source, make_ids(150), (1, 9), (format, format), usual=usual)


@pytest.mark.parametrize("v_format", FLOAT_FORMATS)
@pytest.mark.parametrize("k_format", FLOAT_FORMATS)
def test_formats_of_keys_and_values(k_format: str, v_format: str) -> None:
    program, source = make_program(6, CacheLayer(2, 40, 100, 4), sink_q=True)
    results = [
        check(program, source, make_ids(200), (9,), (k_format, v_format), usual=3e-3, level=level)
        for level in cpu.LEVEL_NAMES
    ]
    assert all(np.array_equal(results[0], other) for other in results), cpu.LEVEL_NAMES


@pytest.mark.parametrize(
    ("k_format", "v_format", "usual"),
    [
        ("i16", "i16", 1e-3),
        ("q8_0", "q8_0", 3e-3),
        ("q4_h", "q4_h", 0.02),
        ("q8_0", "q4_h", 0.02),
        ("f16", "i16", 1e-3),
    ],
)
def test_integers_of_keys_and_values(k_format: str, v_format: str, usual: float) -> None:
    program, source = make_program(6, CacheLayer(2, 40, 100, 4), sink_q=True)
    results = [
        check(program, source, make_ids(200), (1, 9), (k_format, v_format), usual=usual, level=level)
        for level in cpu.LEVEL_NAMES
    ]
    assert all(np.array_equal(results[0], other) for other in results), cpu.LEVEL_NAMES


@pytest.mark.parametrize("dim", [8, 48, 72, 104, 192, 320, 512])
@pytest.mark.parametrize(("heads", "kv"), [(1, 1), (7, 7), (9, 3), (13, 1)])
def test_odd_heads(heads: int, kv: int, dim: int) -> None:
    program, source = make_program(heads, CacheLayer(kv, dim), layers=1)
    check(program, source, make_ids(70), chunks=(1,))


def test_random_programs_however_they_are_cut() -> None:
    """Threads, chunks, splits or not, neighbours and levels: the same bits."""
    rng = np.random.default_rng(5)
    for _ in range(8):
        kv = int(rng.integers(1, 4))
        window = int(rng.integers(1, 400))
        layer = CacheLayer(kv, 8 * int(rng.integers(1, 12)), window, int(rng.integers(0, 65)))
        formats = (str(rng.choice(ALL_FORMATS)), str(rng.choice(ALL_FORMATS)))
        program, source = make_program(
            kv * int(rng.integers(1, 6)),
            layer,
            softcap=float(rng.choice([0, 30])),
            sinks=bool(rng.integers(2)),
            sink_q=True,
        )
        ids, results = make_ids(300), []
        for level in cpu.LEVEL_NAMES:
            for threads in (1, 2, 3):
                with programs.Machine(
                    program, source, 320, formats=formats, num_threads=threads, level=level
                ) as machine:
                    results += [machine.logits(ids, chunk=chunk)[0] for chunk in (512, 7 if threads > 1 else 100)]
                    results.append(machine.logits(ids[:70], ids, chunk=65)[1])
        with pytest.MonkeyPatch.context() as patch, programs.Machine(program, source, 320, formats=formats) as machine:
            patch.setattr(tasks, "FEW", 0)  # nothing is shared out by splits
            results.append(machine.logits(ids, chunk=3)[0])
        assert all(np.array_equal(results[0], other) for other in results), layer
