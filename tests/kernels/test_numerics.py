"""NUMERICS_VERSION follows the bits: what a few programs leave in the cache is pinned, so that nobody forgets to raise it.

If this fails, cached keys and values have other bits, or lie elsewhere, than before: whoever has a disk cache or a saved state
would get them mixed with new ones. If the change is wanted, raise NUMERICS_VERSION and put the new hashes here.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from tiny_models import write_tiny

from edgellm import LLM, loader
from edgellm.config import EngineConfig, SamplingParams
from edgellm.kernels.numerics import NUMERICS_VERSION

PINNED_VERSION = 1
PINNED = {
    "llama": "bf6d1044de22d5bd",
    "llama yarn": "671f276905eacd65",
    "llama precise": "294742e1d3978a8e",
    "gemma3": "676a7fee310d2ccf",
}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"formats": {"default": "Q4_0", "blk.1.*": "Q8_0"}, "tied": False},
    "llama yarn": {
        "formats": "Q8_0",
        "rope": {"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 64},
    },
    "llama precise": {"formats": "Q8_0"},
    "gemma3": {"arch": "gemma3", "layers": 6, "head_dim": 48, "formats": "Q8_0"},
}


def cached_bytes(path: Path, precise: bool) -> str:
    """A hash of all blocks that 64 tokens, one whole block, leave behind."""
    config = EngineConfig(threads=1, max_context=256, precise=precise, cache_type_k="f16", cache_type_v="f16")
    with LLM(loader.load_model(path, config)) as llm:
        llm.generate([(i * 37) % 110 + 1 for i in range(64)], SamplingParams(max_tokens=1, temperature=0.0))
        cache, digest = llm.loaded.cache, hashlib.sha256()
        (node,) = cache.tree
        for group, block in enumerate(node.blocks):
            digest.update(cache.read_block(group, block))
    return digest.hexdigest()[:16]


@pytest.mark.parametrize("name", PINNED)
def test_the_bits_are_those_of_the_version(name: str, tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", **MODELS[name])
    assert (NUMERICS_VERSION, cached_bytes(path, name.endswith("precise"))) == (PINNED_VERSION, PINNED[name])
