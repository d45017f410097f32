"""A window by choice on the CPU backend: what reference.py says of the rewritten program, however it is cut, and nothing
beyond the reach is read."""

from __future__ import annotations

import cpu_programs as programs
import numpy as np
import pytest

from edgellm.kernels import reference
from edgellm.kernels.ops import Builder, CacheLayer, Program, Rope
from edgellm.kernels.windowed import with_window

VOCAB, HIDDEN = 40, 32


def make_program(dim: int, pairs: str, own_window: int | None) -> tuple[Program, programs.MemorySource]:
    """Two layers of 6 heads on 2; the second has a window of its own."""
    rng, source, b = np.random.default_rng(dim), programs.MemorySource(), Builder()
    rope = Rope(dim - 8, 1e4, pairs)  # the tail of a head does not turn

    def matrix(name: str, rows: int, columns: int, size: float = 1.0) -> str:
        return source.put(name, (rng.standard_normal((rows, columns)) * size / columns**0.5).astype(np.float32))

    x = b.embed(matrix("table", VOCAB, HIDDEN, HIDDEN**0.5), HIDDEN)
    for i, window in enumerate((None, own_window)):
        q, k, v = (
            b.linear(x, matrix(f"{n}{i}", h * dim, HIDDEN, 1.3), h * dim) for n, h in (("q", 6), ("k", 2), ("v", 2))
        )
        q, k = b.rope(q, 6, rope), b.rope(k, 2, rope)
        attended = b.attention(q, k, v, 6, CacheLayer(2, dim, window), dim**-0.5)
        x = b.add(x, b.linear(attended, matrix(f"o{i}", HIDDEN, 6 * dim), HIDDEN))
    return b.finish(b.linear(b.logit_rows(x), matrix("out", VOCAB, HIDDEN), VOCAB)), source


def make_ids(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, VOCAB, count).astype(np.int32)


@pytest.mark.parametrize(("dim", "pairs"), [(32, "halves"), (40, "adjacent")])
@pytest.mark.parametrize(
    ("window", "sinks", "own_window"),
    [(70, 4, None), (1, 3, 8), (64, 64, 200), (33, 0, 20), (100, 17, 90), (300, 4, None)],
)
def test_it_means_what_reference_says(window: int, sinks: int, own_window: int | None, dim: int, pairs: str) -> None:
    program, source = make_program(dim, pairs, own_window)
    limited, ids = with_window(program, window, sinks), make_ids(330)
    weights = programs.dequantised(limited, source)
    with programs.rounding_as_the_cpu(source, weights):
        want = reference.run(limited, weights, ids)
    with programs.Machine(limited, source, 384, num_threads=2) as machine:
        got = machine.logits(ids)[0]
        programs.assert_close(got, want)
        for chunk in (1, 7, 64):
            assert np.array_equal(machine.logits(ids, chunk=chunk)[0], got)
        beside = machine.logits(ids[:90], ids, ids[5:200], chunk=20)
        assert np.array_equal(beside[1], got)
    with programs.Machine(program, source, 384) as machine:
        assert np.array_equal(machine.logits(ids)[0][:window], got[:window]), "nothing is dropped yet"
