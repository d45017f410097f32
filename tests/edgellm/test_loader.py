"""From a file to an engine that runs: nothing leaks, memory is checked first, and cases O10, O11 and O21."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path
from typing import Any

import cpu_programs as programs
import numpy as np
import psutil
import pytest
from tiny_models import write_tiny

from edgellm import LLM, models
from edgellm.cache import memory
from edgellm.config import EngineConfig
from edgellm.errors import EdgeLLMError, ModelFileError, ResourceError, UnsupportedError
from edgellm.gguf import open_gguf
from edgellm.kernels import reference
from edgellm.kernels.ops import CacheLayer
from edgellm.loader import load_model


def own_threads() -> int:
    return sum(t.name.startswith("edgellm-") for t in threading.enumerate())


def reference_logits(path: Path, ids: np.ndarray, rows: list[int] | None = None) -> np.ndarray:
    """What reference.py makes of the file, rounding where the CPU backend is meant to."""
    with open_gguf(path) as file:
        program = models.get(file.metadata["general.architecture"]).build(file.metadata, file.tensors)
        weights = programs.dequantised(program, file)
        with programs.rounding_as_the_cpu(file, weights):
            return reference.run(program, weights, ids, rows)


# ---- loading and closing ----
def open_files() -> int:
    process = psutil.Process()
    return process.num_fds() if hasattr(process, "num_fds") else process.num_handles()


def test_twenty_loads_leave_nothing(tmp_path: Path) -> None:
    """Ten MB of weights, so that what one load leaves behind would show."""
    path = write_tiny(tmp_path / "m.gguf", hidden=256, ffn=1024, vocab=2048, layers=2, tied=False)
    assert path.stat().st_size > 10e6
    sizes = []
    for _ in range(20):
        with LLM.load(path, threads=3, max_context=300) as llm:
            assert len(llm.generate([5, 6, 7, 8], max_tokens=4, temperature=0, ignore_eos=True).token_ids) == 4
            assert own_threads() == 3  # two that compute beside the engine's own
        del llm
        assert own_threads() == 0
        gc.collect()
        sizes.append((psutil.Process().memory_info().rss, open_files()))
    assert sizes[-1][0] - sizes[3][0] < 10e6
    assert sizes[-1][1] == sizes[0][1]


def test_closing_in_the_middle_of_a_stream(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.gguf")
    llm = LLM.load(path, threads=2)
    stream = llm.stream([5, 6, 7], max_tokens=200, temperature=1.0, seed=1, ignore_eos=True)
    next(stream)
    llm.close()
    assert own_threads() == 0
    with pytest.raises(EdgeLLMError, match="closed"):
        for _ in stream:
            pass
    with pytest.raises(EdgeLLMError, match="closed"):
        llm.generate([5])
    llm.close()


def test_a_dropped_model_ends_its_threads(tmp_path: Path) -> None:
    llm = LLM.load(write_tiny(tmp_path / "m.gguf"), threads=3)
    llm.generate([5], max_tokens=2, temperature=0)
    del llm
    gc.collect()
    assert own_threads() == 0


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"formats": {"token_embd.weight": "Q8_K"}, "tied": False, "hidden": 256}, UnsupportedError, "Q8_K"),
        ({"formats": {"*ffn_down*": "Q8_K"}, "ffn": 256}, UnsupportedError, "Q8_K"),
        ({"drop": ["blk.1.attn_v.weight"]}, ModelFileError, "blk.1.attn_v.weight"),
    ],
)
def test_a_load_that_fails_leaves_nothing(
    changes: dict[str, Any], error: type[Exception], says: str, tmp_path: Path
) -> None:
    path = write_tiny(tmp_path / "m.gguf", **changes)
    before = open_files()
    with pytest.raises(error, match=says) as raised:
        load_model(path, EngineConfig(threads=3))
    assert "\n" not in str(raised.value)
    del raised
    gc.collect()
    assert own_threads() == 0 and open_files() == before


def test_what_is_loaded_is_described(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    path = write_tiny(tmp_path / "m.gguf", "gemma3", layers=6, window=8, formats="Q8_0")
    loaded = load_model(path, EngineConfig(threads=2), lambda *what: told.append(what))
    try:
        assert (loaded.architecture, loaded.num_threads, loaded.path) == ("gemma3", 2, path)
        assert loaded.template is not None and loaded.load_s > 0
        layer = 2 * 2 * (16 * 2 + 4)  # two heads, K and V, 16 dims of two bytes and a scale
        assert loaded.cache_bytes(100) == layer * (5 * 8 + 100)
        stages = {stage: (done, total) for stage, done, total in told}
        assert stages["load"][0] == stages["load"][1] >= loaded.weight_bytes * 0.9
    finally:
        loaded.close()


def test_raw_and_packed_weights_answer_alike(tmp_path: Path) -> None:
    path, answers = write_tiny(tmp_path / "m.gguf", formats="Q4_1"), []
    for weights in ("packed", "raw", "auto"):
        loaded = load_model(path, EngineConfig(threads=2, weights=weights))
        with LLM(loaded) as llm:
            answers.append(llm.logits(range(10, 90)).tobytes())
    assert len(set(answers)) == 1


# ---- cases ----
def test_o10_a_head_size_of_its_own_and_tied_output(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.gguf", hidden=48, heads=4, kv_heads=2, head_dim=32)
    ids = np.random.default_rng(0).integers(0, 128, 70)
    with LLM.load(path, threads=2, cache_type_k="f16", cache_type_v="f16") as llm:  # as the reference keeps them
        programs.assert_close(llm.logits(ids.tolist()), reference_logits(path, ids))
    for key in ("attention.key_length", "attention.head_count"):
        write_tiny(path, hidden=48, heads=4, kv_heads=2, head_dim=32, metadata={f"llama.{key}": 0})
        with pytest.raises(ModelFileError, match=f"llama.{key} is 0"):
            LLM.load(path)


FAR = [0, 1, 100, 5000]


@pytest.fixture
def only_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """reference.py's attention for the positions in FAR alone: 5000 squared scores per head would take gigabytes."""

    def attention(
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        num_heads: int,
        layer: CacheLayer,
        scale: float,
        *_: float,
        **__: None,
    ) -> np.ndarray:
        out, kv_heads, dim = np.zeros_like(q).reshape(len(q), num_heads, -1), layer.num_kv_heads, layer.head_dim
        q, k, v = q.reshape(len(q), num_heads, dim), k.reshape(-1, kv_heads, dim), v.reshape(-1, kv_heads, dim)
        for t in FAR:
            for h in range(num_heads):
                g = h * kv_heads // num_heads
                out[t, h] = reference.softmax(k[: t + 1, g] @ q[t, h] * np.float32(scale)) @ v[: t + 1, g]
        return out.reshape(len(q), -1)

    monkeypatch.setattr(reference, "attention", attention)


def test_o11_rope_factors_far_out(tmp_path: Path, only_far: None) -> None:
    ids = np.random.default_rng(0).integers(0, 64, 5001)
    far: dict[float, np.ndarray] = {}
    for last_half in (8.0, 1.0):
        path = write_tiny(
            tmp_path / "m.gguf", layers=1, heads=2, kv_heads=1, head_dim=32, vocab=64, context=8192, formats="Q8_0",
            rope_factors=[1.0] * 8 + [last_half] * 8,
        )  # fmt: skip
        with LLM.load(path, max_context=5100, threads=2, cache_type_k="f16", cache_type_v="f16") as llm:
            far[last_half] = llm.logits(ids.tolist())[FAR]
        programs.assert_close(far[last_half], reference_logits(path, ids, FAR), usual=5e-3, most=0.02)
    assert np.array_equal(far[8.0][0], far[1.0][0])  # position 0 turns nothing
    assert programs.row_errors(far[8.0], far[1.0])[3] > 0.05


def test_o11_an_unknown_scaling_is_refused(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.gguf", rope={"scaling.type": "mystery", "scaling.factor": 4.0})
    with pytest.raises(UnsupportedError, match="mystery"):
        LLM.load(path)


@pytest.mark.parametrize(
    ("trained", "context"), [(131072, 4096), (1048576, 4096), (1 << 31, 4096), (100, 100), (0, 4096), (None, 4096)]
)
def test_o21_the_default_context_is_modest(trained: int | None, context: int, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"drop": ["llama.context_length"]} if trained is None else {"context": trained}
    loaded = load_model(write_tiny(tmp_path / "m.gguf", **changes), EngineConfig(threads=1))
    try:
        assert loaded.config.max_context == loaded.engine.max_context == context
        assert loaded.config.prefill_chunk == min(512, context)
    finally:
        loaded.close()


@pytest.mark.parametrize("size", [10**10, 1 << 62])
@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("max_context", {}, "max_context {}"),
        ("max_context", {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}, "max_context {}"),
        ("max_context", {"on_full": "window"}, "a window of {} tokens"),
        ("window", {"sinks": 64}, "a window of {} tokens"),
    ],
)
def test_o21_too_large_a_context_is_refused_before_memory_is_taken(
    name: str, options: dict[str, Any], says: str, size: int, tmp_path: Path
) -> None:
    path = write_tiny(tmp_path / "m.gguf", context=131072)
    before, start = psutil.Process().memory_info(), time.perf_counter()
    with pytest.raises(
        ResourceError, match=rf"{says.format(size)} .*needs .*\(\d+ bytes\).*available .*bytes\).*--{name[:3]}"
    ):
        load_model(path, EngineConfig(**{name: size}, **options))
    after = psutil.Process().memory_info()
    assert time.perf_counter() - start < 2 and own_threads() == 0
    assert after.rss - before.rss < 20e6 and after.vms - before.vms < 200e6


def test_o21_the_limit_is_what_the_machine_has_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tiny(tmp_path / "m.gguf")
    config = EngineConfig(threads=1, max_context=1024, max_sequences=1)
    loaded = load_model(path, config)
    spare = loaded.engine.runner.cache.nbytes
    loaded.close()
    needed = spare // 2  # what earlier sequences leave behind has room where there is some
    for available, taken in ((spare, spare), (spare - 1, needed), (needed, needed)):
        monkeypatch.setattr(memory, "available_bytes", lambda: available)  # noqa: B023
        loaded = load_model(path, config)
        assert loaded.engine.runner.cache.nbytes == taken
        loaded.close()
    monkeypatch.setattr(memory, "available_bytes", lambda: needed - 1)
    with pytest.raises(ResourceError, match=rf"{needed} bytes.*{needed - 1} bytes.*--max-context"):
        load_model(path, config)
