"""EmbeddingGemma (Vera et al. 2025, arXiv:2509.20354): Gemma 3 as an encoder, whose tokens see those behind them too.

Describes the network by `gemma3.py`'s layers; knows no numbers and no backend. Next hop: `gemma3.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.ops import Builder, Program
from . import gemma3, pooling
from .hparams import HParams
from .weights import HasShape, Weights


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a gemma-embedding file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    h, w, b = HParams(metadata, "gemma-embedding"), Weights(tensors), Builder()
    vocab_size = w.vocab_size(metadata, "token_embd.weight")
    x, _ = gemma3.trunk(h, w, b, vocab_size, is_causal=False)
    w.optional("output.weight", vocab_size, x.width)  # nothing is made of it
    head = pooling.read(h, w, x.width)
    w.check_all_used("gemma-embedding")
    return b.finish(b.logit_rows(x), makes_logits=False, pooling=head)
