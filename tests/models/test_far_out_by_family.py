"""Cases O10 and O11 together, on the CPU's kernels: heads of an odd size, tied outputs, factors and positions far out, by family.

Linear scaling by less than one stretches positions: the last of 100 tokens stands where the 6300th would.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import reference_models as stored
import stored_headers as headers
from tiny_models import write_model

from edgellm import LLM
from edgellm.gguf import open_gguf

NUM_TOKENS, STRETCH = 100, 64  # a power of two is the same in float32
MAX_ERROR = 0.005
"""Of the logits' standard deviation, root mean square: that of test_architectures.py for float32 weights."""
FAMILIES = {
    **dict.fromkeys(("arcee", "granite", "llama", "mistral3", "granitehybrid-dense"), "rope_freqs.weight"),
    **dict.fromkeys(("gemma2", "gemma3", "glm4", "olmo2", "phi3", "qwen2", "qwen3", "smollm3", "stablelm"), ""),
    **dict.fromkeys(("starcoder2", "lfm2", "cohere2"), ""),
}
"""Stored models without experts, whose routing may send a token elsewhere for a rounding; the factors that they read."""


def make_file(name: str, folder: Path, last_half: float) -> Path:
    """The model with heads of 24, no output.weight, no vocab_size, and factors whose last half is such."""
    factors = FAMILIES[name]
    header = headers.with_head_size(name, 24)
    header = header.set(vocab_size=None, **{"rope.scaling.finetuned": True if "hybrid" in name else None})
    scaling = {"type": "linear", "factor": 1.0 / STRETCH, "attn_factor": None, "yarn_log_multiplier": None}
    header = header.set(**{f"rope.scaling.{key}": value for key, value in scaling.items()})
    header = header.set(
        **{"attention.scale": None, "residual_scale": None}
    )  # Granite's are too small for random weights
    header = header.reshape({"output.weight": None} | ({factors: (12,)} if factors else {}))
    rng = np.random.default_rng(0)
    tensors = {}
    for tensor, shape in header.shapes.items():
        values = rng.normal(0, 0.1 if len(shape) == 1 else shape[-1] ** -0.5, shape)
        tensors[tensor] = (values + ("norm" in tensor and "weight" in tensor)).astype(np.float32)
        if tensor == "token_embd.weight":
            tensors[tensor] *= 2.5
        if tensor.startswith("rope_f"):
            tensors[tensor] = np.repeat(np.float32([1.0, last_half]), len(values) // 2)
        if tensor.endswith("ssm_a"):  # how fast a state fades, below zero
            tensors[tensor] = -np.abs(tensors[tensor])
    metadata = {key: stored._plain(value) for key, value in header.metadata.items() if np.size(value)}
    return write_model(folder / f"{name}.{last_half:g}.gguf", metadata, tensors, {"default": "F32"})


@pytest.mark.parametrize("name", FAMILIES)
def test_the_cpu_says_what_the_reference_says_far_out(name: str, tmp_path: Path) -> None:
    ids = stored.expected(name)[0][:NUM_TOKENS]
    last = []
    for last_half in (8.0, 1.0) if FAMILIES[name] else (1.0,):
        path = make_file(name, tmp_path, last_half)
        with open_gguf(path) as file:
            expected = stored.run_reference(file, ids)
            ropes = [rope for rope, _ in headers.ropes(stored.build(file))]
        assert (
            any((rope.scaling, rope.factor) == ("linear", 1.0 / STRETCH) for rope in ropes)
            and np.isfinite(expected).all()
        )
        with LLM.load(path, threads=2, spec="off") as llm:
            found = stored.answer(llm, ids)
        error = np.sqrt(np.mean(np.square(found - expected))) / expected.std()
        assert error <= MAX_ERROR, f"{error:.4f} of the logits' deviation"
        last.append(found[-1])
    if FAMILIES[name]:
        assert np.abs(last[0] - last[1]).max() > 20 * MAX_ERROR * last[1].std(), "factors matter far out"
