"""The promise of the CPU backend, on random tiny models of every kind: logits never depend on how they are computed.

Not on threads, chunks, neighbours in the batch, the weights' layout or the instruction level; and they are near
reference.py, which is told to round where the backend is meant to.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import cpu_kernels as cpu
import cpu_programs as programs
import numpy as np
import pytest
from tiny_models import write_tiny

from edgellm import models
from edgellm.gguf import GGUFFile, open_gguf
from edgellm.kernels import reference

CHUNKS = (512, 1, 2, 3, 7, 64)
SEEDS = range(max(16, len(cpu.FORMAT_NAMES)))  # every format has its turn


def fitting_formats(width: int) -> list[str]:
    return [
        name
        for name in cpu.FORMAT_NAMES
        if width % max(cpu.formats.get(name).group_size, 32 if name in cpu.INT8_FORMATS else 1) == 0
    ]


@dataclasses.dataclass
class Tiny:
    """A random model's options for write_tiny, and prompts for it."""

    options: dict[str, Any]
    prompts: list[np.ndarray]


def make_tiny(seed: int) -> Tiny:
    """Sizes that fit no register, every format by turns, window and full layers, biases, scaled rope."""
    rng = random.Random(seed)
    arch = ("llama", "gemma3")[seed % 2]
    hidden, ffn = rng.choice([(256, 512), (96, 160), (64, 256), (48, 80), (32, 96), (256, 288)])
    turn = cpu.FORMAT_NAMES[seed % len(cpu.FORMAT_NAMES)]
    if turn not in fitting_formats(hidden):
        hidden, ffn = 256, 288
    kv_heads = rng.choice([1, 2, 3])
    heads, head_dim = kv_heads * rng.choice([1, 2, 3, 4]), rng.choice([8, 16, 24, 32, 64])
    if seed % 3 == 0:
        heads, kv_heads, head_dim = 8, 2, 32  # heads * head_dim of K formats
    widths = {"default": hidden, "*attn_output.weight": heads * head_dim, "*ffn_down.weight": ffn}
    formats = {name: rng.choice(fitting_formats(width)) for name, width in widths.items()}
    for name in ("attn_q", "attn_v", "ffn_gate", "token_embd"):  # first match counts: beside the default
        formats = {f"*{name}.weight": rng.choice(fitting_formats(hidden)), **formats}
    formats["*attn_q.weight"] = turn
    vocab = rng.choice([97, 128, 203])
    options = {
        "arch": arch, "layers": rng.choice([1, 2, 7]), "hidden": hidden, "ffn": ffn, "heads": heads, "kv_heads": kv_heads,
        "head_dim": head_dim, "vocab": vocab, "window": rng.choice([5, 64, 65, 100]), "tied": rng.random() < 0.5,
        "formats": formats, "biases": arch == "llama" and rng.random() < 0.5, "seed": seed,
    }  # fmt: skip
    if rng.random() < 0.5:
        options["rope"] = {"scaling.type": "linear", "scaling.factor": 2.0}
    numbers = np.random.default_rng(seed)
    prompts = [numbers.integers(0, vocab, n).astype(np.int32) for n in (rng.choice([70, 140, 270]), 33, 9)]
    return Tiny(options, prompts)


def make_machine(file: GGUFFile, **options: Any) -> programs.Machine:
    program = models.get(file.metadata["general.architecture"]).build(file.metadata, file.tensors)
    return programs.Machine(program, file, 320, max_sequences=3, **({"max_tokens": 600} | options))


def variants(file: GGUFFile, prompts: list[np.ndarray]) -> dict[str, np.ndarray]:
    """The first prompt's logits, computed in every way."""
    first, best = prompts[0], cpu.get_available_levels()[0]
    results = {}
    for threads in (1, 2, 3):
        with make_machine(file, num_threads=threads, level=best) as machine:
            for chunk in CHUNKS if threads == 1 else (512, 7, 1):
                results[f"{threads} threads, chunks of {chunk}"] = machine.logits(first, chunk=chunk)[0]
            for chunk in (512, 5):
                order = [prompts[1], first, prompts[2]]
                results[f"{threads} threads, among three, {chunk}"] = machine.logits(*order, chunk=chunk)[1]
    for level in cpu.get_available_levels():
        for packed in (True, False):
            with make_machine(file, num_threads=2, level=level, packed=packed) as machine:
                for chunk in (512, 3):
                    results[f"{level}, packed: {packed}, {chunk}"] = machine.logits(first, chunk=chunk)[0]
    return results


@pytest.mark.parametrize("seed", SEEDS)
def test_random_models(seed: int, tmp_path: Path) -> None:
    tiny = make_tiny(seed)
    with open_gguf(write_tiny(tmp_path / "tiny.gguf", **tiny.options)) as file:
        results = variants(file, tiny.prompts)
        want = expected(file, tiny.prompts[0])
    base = results.pop("1 threads, chunks of 512")
    for name, got in results.items():
        assert np.array_equal(got, base), f"{name} differs from one thread and one chunk: {tiny.options}"
    quantised = set(tiny.options["formats"].values()) & set(cpu.INT8_FORMATS)
    # A value between two integers falls either way, one part in 254 of its group's largest; seven layers add up.
    programs.assert_close(base, want, **({"usual": 0.04, "most": 0.1} if quantised else {}))


def expected(file: GGUFFile, ids: np.ndarray) -> np.ndarray:
    program = models.get(file.metadata["general.architecture"]).build(file.metadata, file.tensors)
    weights = programs.dequantised(program, file)
    with programs.rounding_as_the_cpu(file, weights):
        return reference.run(program, weights, ids)


def test_the_random_models_are_of_every_kind() -> None:
    options = [make_tiny(seed).options for seed in SEEDS]
    assert {f for o in options for f in o["formats"].values()} == set(cpu.FORMAT_NAMES)
    assert {o["hidden"] % 32 for o in options} == {0, 16} and any(o["vocab"] % 8 for o in options)
    assert {o["tied"] for o in options} == {o["biases"] for o in options} == {True, False}


@pytest.mark.parametrize("form", cpu.FORMAT_NAMES)
def test_one_format_throughout_is_near_the_unrounded_reference(form: str, tmp_path: Path) -> None:
    """Without telling reference.py to round: int8 activations are worth some percent, K and V as halves much less."""
    path = write_tiny(tmp_path / "m.gguf", hidden=256, ffn=512, heads=8, kv_heads=4, formats=form)
    ids = np.random.default_rng(1).integers(0, 128, 100).astype(np.int32)
    with open_gguf(path) as file, make_machine(file) as machine:
        got, program = machine.logits(ids)[0], machine.backend.program
        want = reference.run(program, programs.dequantised(program, file), ids)
    errors = programs.row_errors(got, want)
    limit = 0.06 if form in cpu.INT8_FORMATS else 1e-3
    assert errors.max() < limit, errors.max()


MIXTURES = (
    {"*ffn_down.weight": "F16", "default": "Q4_0"},
    {"default": "Q8_0"},
    {"*attn_v.weight": "Q6_K", "default": "Q4_K"},
)


@pytest.mark.parametrize("forms", MIXTURES)
def test_precise_mode(forms: dict[str, str], tmp_path: Path) -> None:
    """The same bits in every way of computing, and a tenth of the ordinary distance from float32 arithmetic."""
    path = write_tiny(tmp_path / "m.gguf", hidden=256, ffn=512, heads=8, kv_heads=4, formats=forms)
    ids = np.random.default_rng(1).integers(0, 128, 150).astype(np.int32)
    with open_gguf(path) as file:
        results = {}
        for level in cpu.get_available_levels():
            for threads, packed, chunk in ((1, True, 512), (2, True, 1), (3, True, 7), (2, False, 64), (1, False, 2)):
                with make_machine(file, precise=True, level=level, num_threads=threads, packed=packed) as machine:
                    results[level, threads, packed, chunk] = machine.logits(ids, chunk=chunk)[0]
                    program = machine.backend.program
        with make_machine(file) as machine:
            ordinary = machine.logits(ids)[0]
        want = reference.run(program, programs.dequantised(program, file), ids)
    precise = results[cpu.get_available_levels()[0], 1, True, 512]
    assert all(np.array_equal(got, precise) for got in results.values()), [
        k for k, v in results.items() if (v != precise).any()
    ]
    assert np.median(programs.row_errors(precise, want)) < 0.1 * np.median(programs.row_errors(ordinary, want))


def test_the_same_backend_again_and_other_rows(tmp_path: Path) -> None:
    """What ran before leaves no trace, and only wanted rows come back, more of them than the head does at once."""
    with open_gguf(write_tiny(tmp_path / "m.gguf", "gemma3", formats="Q8_0", layers=3)) as file:
        ids = np.random.default_rng(1).integers(0, 128, 150).astype(np.int32)
        with make_machine(file) as machine:
            first = machine.logits(ids)[0]
            machine.logits(ids[::-1].copy(), ids[:5], chunk=11)
            assert np.array_equal(machine.logits(ids)[0], first)
            for rows in ([149], [0, 7], list(range(33)), list(range(0, 150, 2)), []):
                assert np.array_equal(run_rows(machine, ids, rows), first[rows])


def run_rows(machine: programs.Machine, ids: np.ndarray, rows: list[int]) -> np.ndarray:
    from edgellm.kernels.ops import Batch

    machine.cache.clear()
    machine.cache.reserve(0, 0, len(ids))
    batch = Batch(
        token_ids=ids,
        positions=np.arange(len(ids), dtype=np.int64),
        sequences=np.zeros(len(ids), np.int32),
        block_tables=machine.cache.tables,
        logit_rows=np.array(rows, np.int32),
    )
    got = machine.backend.run(batch)
    assert got.dtype == np.float32 and got.shape == (len(rows), machine.backend.vocab_size)
    return got
