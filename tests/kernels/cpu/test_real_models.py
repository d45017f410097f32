"""The promise of test_same_bits.py on the two real models, from their first token to past a split of the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cpu_kernels as cpu
import cpu_programs as programs
import numpy as np
import pytest

from edgellm import models
from edgellm.gguf import GGUFFile, open_gguf

pytestmark = pytest.mark.model
LENGTH, NEIGHBOURS = 270, (33, 9)  # past a split (256) and, for Gemma, whose window is 512, within it


@pytest.fixture(params=["smollm2_path", "gemma3_path"])
def file(request: pytest.FixtureRequest) -> Any:
    path: Path = request.getfixturevalue(request.param)
    with open_gguf(path) as opened:
        yield opened


def make_machine(file: GGUFFile, **options: Any) -> programs.Machine:
    program = models.get(file.metadata["general.architecture"]).build(file.metadata, file.tensors)
    return programs.Machine(program, file, 320, max_sequences=3, max_tokens=600, **options)


def make_ids(file: GGUFFile, count: int) -> np.ndarray:
    vocab = len(file.metadata["tokenizer.ggml.tokens"])
    return np.random.default_rng(count).integers(0, vocab, count).astype(np.int32)


def bits(machine: programs.Machine, ids: np.ndarray, chunk: int, *neighbours: np.ndarray) -> bytes:
    """Logits of every 13th position: all of Gemma's would be 283 MB."""
    rows = machine.logits(ids, *neighbours, chunk=chunk, every=13)[0]
    assert np.isfinite(rows).all() and rows.std() > 0.1
    return rows.tobytes()


def test_same_bits_for_threads_chunks_and_neighbours(file: GGUFFile) -> None:
    ids, neighbours = make_ids(file, LENGTH), [make_ids(file, n) for n in NEIGHBOURS]
    results = {}
    for threads, chunks in ((2, (512, 64, 7)), (1, (512,)), (3, (64,))):
        with make_machine(file, num_threads=threads) as machine:
            for chunk in chunks:
                results[f"{threads} threads, chunks of {chunk}"] = bits(machine, ids, chunk)
            results[f"{threads} threads, among three"] = bits(machine, ids, 100, *neighbours)
    base = results.pop("2 threads, chunks of 512")
    assert not [name for name, got in results.items() if got != base]


def test_same_bits_for_layouts_levels_and_single_tokens(file: GGUFFile) -> None:
    ids, best = make_ids(file, 40), cpu.get_available_levels()[0]
    results = {}
    for level, packed, chunks in ((best, True, (512, 1, 2)), (best, False, (512, 1)), ("generic", True, (9,))):
        with make_machine(file, num_threads=2, packed=packed, level=level) as machine:
            for chunk in chunks:
                results[f"{level}, packed: {packed}, chunks of {chunk}"] = bits(machine, ids, chunk)
    base = results.pop(f"{best}, packed: True, chunks of 512")
    assert not [name for name, got in results.items() if got != base]
