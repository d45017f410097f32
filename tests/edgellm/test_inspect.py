"""What `edgellm inspect` says of sound files and of files whose metadata lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_models import write_tiny

from edgellm.cache import memory
from edgellm.gguf import open_gguf
from edgellm.inspect import Summary, summarise
from edgellm.kernels.ops import CacheLayer


def inspect(path: Path) -> Summary:
    with open_gguf(path) as model:
        return summarise(model)


def test_a_llama_in_numbers(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.gguf", layers=3, head_dim=32, formats={"default": "Q8_0", "*embd*": "F16"})
    found = inspect(path)
    assert (found.architecture, found.name, found.tokenizer, found.has_chat_template) == (
        *("llama", "Tiny llama", "gpt2"),
        True,
    )
    assert (found.context_length, found.num_layers, found.hidden_size, found.ffn_size) == (256, 3, 64, 96)
    assert (found.num_heads, found.num_kv_heads, found.head_dim, found.vocab_size) == (4, 2, 32, 128)
    matrices = 3 * (2 * 128 * 64 + 2 * 64 * 64 + 3 * 96 * 64)
    vectors = 7 * 64
    assert found.num_parameters == matrices + vectors + 128 * 64
    assert {use.name: (use.num_tensors, use.nbytes) for use in found.formats} == {
        "Q8_0": (21, matrices // 32 * 34),
        "F16": (1, 128 * 64 * 2),
        "F32": (7, vectors * 4),
    }
    assert [use.nbytes for use in found.formats] == sorted((use.nbytes for use in found.formats), reverse=True)
    assert found.weights_bytes == sum(use.nbytes for use in found.formats)
    assert found.file_bytes == path.stat().st_size
    assert found.problem is None


def test_memory_is_weights_and_the_cache_that_loading_would_make(tmp_path: Path) -> None:
    found = inspect(write_tiny(tmp_path / "m.gguf", layers=3))
    assert found.kv_bytes_per_token == 3 * 2 * 2 * (
        16 * 2 + 4
    )  # layers, kv heads, K and V, dims of two bytes and a scale
    assert (found.window, found.num_window_layers, found.kv_window_bytes(256)) == (None, 0, 0)
    assert found.cache_layers is not None
    assert found.memory_bytes(1000, 2, 64) == found.weights_bytes + memory.needed_bytes(found.cache_layers, 1000, 2, 64)


def test_window_layers_are_counted_apart(tmp_path: Path) -> None:
    found = inspect(write_tiny(tmp_path / "m.gguf", "gemma3", layers=7, window=16))
    assert (found.window, found.num_window_layers, found.problem) == (16, 6, None)
    assert found.kv_bytes_per_token == 1 * 2 * 2 * (16 * 2 + 4)
    near, far = found.kv_window_bytes(4096), found.kv_window_bytes(1 << 20)
    assert near == far and near > 0
    growth = found.memory_bytes(1 << 20) - found.memory_bytes(1 << 19)
    assert growth == found.kv_bytes_per_token << 19


@pytest.mark.parametrize(
    ("declared", "default"), [(131072, 4096), (1 << 20, 4096), (1 << 31, 4096), (0, 4096), (100, 100)]
)
def test_default_context_is_modest(tmp_path: Path, declared: int, default: int) -> None:
    found = inspect(write_tiny(tmp_path / "m.gguf", metadata={"llama.context_length": declared}))
    assert found.default_context == default
    assert found.context_length == (declared or None)
    assert found.as_dict()["max_context"] == default
    assert found.as_dict(77)["max_context"] == 77


def test_what_the_cache_takes_follows_its_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    halves = memory.tile_bytes

    def tile_bytes(layer: CacheLayer, formats: tuple[str, str]) -> tuple[int, int]:
        k, v = halves(layer, ("f16", "f16"))
        return k // (2 if formats[0] == "q8_0" else 1), v // (4 if formats[1] == "q4_h" else 1)

    monkeypatch.setattr(memory, "tile_bytes", tile_bytes)
    path = write_tiny(tmp_path / "m.gguf", "gemma3", layers=12, head_dim=32)
    with open_gguf(path) as file:
        plain, small = summarise(file), summarise(file, ("q8_0", "q4_h"))
    plain_bytes, small_bytes = plain.kv_bytes_per_token, small.kv_bytes_per_token
    assert plain_bytes == 2 * 2 * 32 * 2 * 2 and small_bytes is not None, (
        "two layers see all: 2 heads of 32, 2 bytes, k and v"
    )
    assert small_bytes * 8 == plain_bytes * 3
    assert (small.kv_window_bytes(9999) or 0) * 8 == (plain.kv_window_bytes(9999) or 0) * 3
    assert (small.as_dict()["cache_type_k"], small.as_dict()["cache_type_v"]) == ("q8_0", "q4_h")


def test_all_of_it_is_json(tmp_path: Path) -> None:
    found = json.loads(json.dumps(inspect(write_tiny(tmp_path / "m.gguf")).as_dict()))
    assert found["architecture"] == "llama" and found["memory_bytes"] > found["weights_bytes"]
    assert found["formats"][0]["name"] == "F32"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metadata": {"general.architecture": "unknownarch"}}, "unknownarch"),
        ({"drop": ["general.architecture"]}, "general.architecture"),
        ({"drop": ["llama.embedding_length"]}, "embedding_length"),
        ({"drop": ["blk.1.ffn_up.weight"]}, "blk.1.ffn_up.weight"),
        ({"metadata": {"llama.attention.head_count": 0}}, "head_count"),
        ({"hidden": 256, "ffn": 256, "formats": {"default": "Q8_K"}}, "Q8_K"),
    ],
)
def test_what_cannot_run_is_described_and_the_reason_given(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    found = inspect(write_tiny(tmp_path / "m.gguf", **options))
    assert found.problem is not None and words in found.problem and "\n" not in found.problem
    assert found.num_parameters > 0 and found.vocab_size == 128
    json.dumps(found.as_dict())


LIES = [0, -1, 3, 10**6, 2**63 - 1, 1.5, float("nan"), True, "", "x", [1, 2], [0.5], ["a", "b"]]
KEYS = [
    *("general.architecture", "general.name", "tokenizer.ggml.tokens", "tokenizer.ggml.model"),
    *("tokenizer.chat_template", "llama.block_count", "llama.context_length", "llama.embedding_length"),
    *("llama.feed_forward_length", "llama.attention.head_count", "llama.attention.head_count_kv"),
    *("llama.attention.key_length", "llama.rope.dimension_count", "llama.rope.scaling.type", "llama.rope.freq_base"),
    "llama.attention.layer_norm_rms_epsilon",
]


@pytest.mark.parametrize("key", KEYS)
def test_lying_metadata_never_stop_the_description(tmp_path: Path, key: str) -> None:
    for i, lie in enumerate(LIES):
        with open_gguf(write_tiny(tmp_path / f"{i}.gguf", layers=1, metadata={key: lie})) as model:
            json.dumps(summarise(model).as_dict())


def test_a_vocabulary_without_a_model_is_described(tmp_path: Path) -> None:
    tiny = write_tiny(tmp_path / "m.gguf", layers=0, drop=["token_embd.weight", "output_norm.weight"])
    found = inspect(tiny)
    assert (found.num_parameters, found.vocab_size, found.formats) == (0, 128, ())
    assert found.problem is not None


def test_text_that_moves_the_cursor_is_shown_harmless(tmp_path: Path) -> None:
    found = inspect(write_tiny(tmp_path / "m.gguf", metadata={"general.name": "a\x1b[2Jb\nc" + "d" * 500}))
    assert found.name is not None and found.name.startswith("a?[2Jb?cd") and len(found.name) == 200
