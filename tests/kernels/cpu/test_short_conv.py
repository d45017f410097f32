"""Short convolutions on the CPU: what the reference says, whatever the cut, the threads and who else is in the batch."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_programs import Machine, MemorySource, assert_close, dequantised

from edgellm.kernels import reference
from edgellm.kernels.ops import Builder, Program

VOCAB = 64


def make_program(width: int, num_taps: int, bias: bool) -> tuple[Program, MemorySource]:
    """Two convolutions, one after the other: the second has a bias or not."""
    rng, source, b = np.random.default_rng(width + num_taps), MemorySource(), Builder()

    def put(name: str, *shape: int) -> str:
        return source.put(name, rng.normal(0, 1, shape).astype(np.float32))

    x = b.embed(put("table", VOCAB, width), width)
    x = b.short_conv(x, put("first", width, num_taps), num_taps)
    x = b.short_conv(b.activate(x, "silu"), put("second", width, 3), 3, put("bias", width) if bias else None)
    return b.finish(b.linear(b.logit_rows(x), put("out", VOCAB, width), VOCAB)), source


@pytest.mark.parametrize(("width", "num_taps", "bias"), [(32, 2, False), (96, 4, True), (40, 3, True)])
@pytest.mark.parametrize("threads", [1, 2])
def test_any_cut_gives_the_same_bits(width: int, num_taps: int, bias: bool, threads: int) -> None:
    program, source = make_program(width, num_taps, bias)
    rng = np.random.default_rng(3)
    texts = [rng.integers(0, VOCAB, n).tolist() for n in (50, 1, 23)]
    with Machine(program, source, 64, num_threads=threads) as machine:
        whole = machine.logits(*texts)
        weights = dequantised(program, source)
        for text, found in zip(texts, whole, strict=True):
            assert_close(found, reference.run(program, weights, text), 1e-5, 1e-4)
        for chunk in (1, 2, 3, 7):
            for found, again in zip(whole, machine.logits(*texts, chunk=chunk), strict=True):
                assert found.tobytes() == again.tobytes(), f"in chunks of {chunk}"
        assert machine.logits(texts[0])[0].tobytes() == whole[0].tobytes(), "alone"


def test_states_are_written_after_every_token_that_the_batch_names() -> None:
    """Going back to behind some guesses of a step gives the bits of having begun there."""
    program, source = make_program(32, 3, False)
    text = np.random.default_rng(5).integers(0, VOCAB, 30).astype(np.int32)
    with Machine(program, source, 64, max_sequences=1) as machine:
        whole = machine.logits(text)[0]
        machine.cache.clear()
        machine.step([(0, 0, text[:20])], guessed=10)
        for place in (20, 19, 14, 11, 10):
            found = machine.step([(0, place, text[place:])])[0]
            assert found.tobytes() == whole[place:].tobytes()
