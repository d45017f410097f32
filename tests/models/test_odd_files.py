"""Files as real converters made them, old or careless ones: read as they are meant, or refused in one line that says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference_models as stored
from tiny_models import write_tiny

from edgellm.errors import EdgeLLMError, ModelFileError, UnsupportedError
from edgellm.gguf import open_gguf

IDS = np.arange(3, 40)


def logits(path: Path) -> np.ndarray:
    with open_gguf(path) as file:
        return stored.run_reference(file, IDS)


HALF = np.ones(8, np.float32)
MENDED: dict[str, dict[str, Any]] = {
    "no vocab_size": {},
    "vocab_size said": {"metadata": {"llama.vocab_size": 128}},
    "no rope.dimension_count": {"drop": ["llama.rope.dimension_count"]},
    "no rope.freq_base: 10000": {"drop": ["llama.rope.freq_base"]},
    "freq_base as a whole number": {"metadata": {"llama.rope.freq_base": 10000}},
    "no context_length": {"drop": ["llama.context_length"]},
    "no tokens, but a table": {"drop": ["tokenizer.ggml.tokens"]},
    "frequencies in the layers": {"tensors": {f"blk.{i}.attn_rot_embd.weight": HALF for i in range(2)}},
    "inverse frequencies by their old name": {"tensors": {"blk.0.attn.rotary_emb.inv_freq": HALF}},
    "factors of rope that change nothing": {"tensors": {"rope_freqs.weight": HALF}},
    "key heads of each layer": {"metadata": {"llama.attention.head_count_kv": [2, 2]}},
    "sizes of each layer": {"metadata": {"llama.feed_forward_length": [96, 96]}},
    "no experts, said with zeros": {"metadata": {"llama.expert_count": 0, "llama.expert_used_count": 0}},
    "the old key of linear scaling, by 1": {"metadata": {"llama.rope.scale_linear": 1.0}},
}


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    return logits(write_tiny(tmp_path_factory.mktemp("usual") / "m.gguf"))


@pytest.mark.parametrize("case", MENDED)
def test_what_is_left_out_or_said_otherwise_changes_nothing(case: str, usual: np.ndarray, tmp_path: Path) -> None:
    assert np.array_equal(logits(write_tiny(tmp_path / "m.gguf", **MENDED[case])), usual)


def test_an_output_of_its_own_that_equals_the_table_is_the_tied_one(usual: np.ndarray, tmp_path: Path) -> None:
    with open_gguf(write_tiny(tmp_path / "tied.gguf")) as file:
        table = stored.FileWeights(file)["token_embd.weight"].copy()
    path = write_tiny(tmp_path / "m.gguf", tensors={"output.weight": table})
    assert np.array_equal(logits(path), usual)


EXPERTS = {"llama.expert_count": 2, "llama.expert_used_count": 1}
EACH = {
    f"blk.{i}.ffn_{n}.{e}.weight": np.ones((96, 64), np.float32) for i in (0, 1) for n in ("gate", "up") for e in (0, 1)
}
EACH |= {f"blk.{i}.ffn_down.{e}.weight": np.ones((64, 96), np.float32) for i in (0, 1) for e in (0, 1)}
EACH |= {f"blk.{i}.ffn_gate_inp.weight": np.ones((2, 64), np.float32) for i in (0, 1)}
WHOLE = [f"blk.{i}.ffn_{name}.weight" for i in (0, 1) for name in ("gate", "up", "down")]
REFUSED: dict[str, tuple[type[EdgeLLMError], str, dict[str, Any]]] = {
    "each expert a tensor": (
        ModelFileError,
        r"lacks the tensor blk\.0\.ffn_\w+_exps\.weight; it keeps each expert in a tensor of its own \(blk\.0\.ffn_\w+\.0",
        {"metadata": EXPERTS, "tensors": EACH, "drop": WHOLE},
    ),
    "names of Transformers": (
        ModelFileError,
        r"lacks the tensor token_embd\.weight; its tensors have other names \('model\.embed_tokens\.weight'\)",
        {"layers": 0, "drop": ["token_embd.weight", "output_norm.weight"]}
        | {
            "tensors": {"model.embed_tokens.weight": np.ones((128, 64), np.float32)},
            "metadata": {"llama.block_count": 2},
        },
    ),
    "one layer without keys": (
        ModelFileError,
        r"llama\.attention\.head_count_kv is .* at least 1",
        {"metadata": {"llama.attention.head_count_kv": [2, 0]}},
    ),
    "heads of each layer": (
        ModelFileError,
        r"llama\.attention\.head_count is ",
        {"metadata": {"llama.attention.head_count": [4, 4]}},
    ),
    "key heads of too many layers": (
        ModelFileError,
        r"head_count_kv is .*one for each layer",
        {"metadata": {"llama.attention.head_count_kv": [2, 2, 2]}},
    ),
    "the first of a split model's": (ModelFileError, r"lacks the tensor blk\.1\.", {"drop": ["blk.1.attn_q.weight"]}),
    "more tokens than rows": (
        ModelFileError,
        r"token_embd\.weight has the shape \(100, 64\)",
        {"tensors": {"token_embd.weight": np.ones((100, 64), np.float32)}},
    ),
    "a part of a picture model": (
        UnsupportedError,
        r"tensor 'v\.patch_embd\.weight' is not part of the llama architecture",
        {"tensors": {"v.patch_embd.weight": np.ones((4, 4), np.float32)}},
    ),
    "no norm's epsilon": (
        ModelFileError,
        r"lacks llama\.attention\.layer_norm_rms_epsilon",
        {"drop": ["llama.attention.layer_norm_rms_epsilon"]},
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_mended_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    kind, message, options = REFUSED[case]
    with open_gguf(write_tiny(tmp_path / "m.gguf", **options)) as file, pytest.raises(kind, match=message) as caught:
        stored.build(file)
    assert "\n" not in str(caught.value)
