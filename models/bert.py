"""BERT (Devlin et al. 2019, arXiv:1810.04805) and its kin: encoders, whose tokens see those before and behind them.

What embeds and ranks: all-MiniLM, bge, e5, gte, Snowflake Arctic. RoBERTa files have the same tensors; their converter has
dropped the rows of positions that no token gets. Describes the network once, as a Program; knows no numbers and no backend.
Next hop: `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import ModelFileError
from ..kernels.ops import Program, Value
from .blocks import Blocks
from .pooling import finish_encoder
from .weights import HasShape


def build(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
    """Write the network of a bert file; ModelFileError or UnsupportedError name the key or tensor at fault."""
    n = begin(metadata, tensors, "bert")
    n.w.promise_biases("token_embd_norm", "attn_output_norm", "layer_output_norm")
    rows = n.h.integer("context_length")
    positions = n.w.require("position_embd.weight", rows, n.hidden)
    x = n.b.add(embed(n, metadata), n.b.embed(positions, n.hidden, by="positions", rows=rows))
    x = n.norm(x, "token_embd_norm")
    for i in range(n.num_layers):
        layer, ffn = f"blk.{i}", n.h.per_layer("feed_forward_length", n.num_layers)[i]
        x = n.norm(n.b.add(x, n.attention(x, i, None)), f"{layer}.attn_output_norm")
        y = n.b.activate(n.linear(x, f"{layer}.ffn_up", ffn), "gelu_erf")
        x = n.norm(n.b.add(x, n.linear(y, f"{layer}.ffn_down", n.hidden)), f"{layer}.layer_output_norm")
    return finish_encoder(n.b, n.h, n.w, x)


def begin(metadata: Mapping[str, Any], tensors: Mapping[str, HasShape], architecture: str) -> Blocks:
    """Begin the network of a kin of BERT."""
    n = Blocks(metadata, tensors, architecture, norm="layer", is_causal=False)
    causal = n.h.get("attention.causal", False)
    if isinstance(causal, np.ndarray) or causal not in (False, 0):
        raise ModelFileError(f"{architecture}.attention.causal must be false: its tokens see those behind them too")
    return n


def embed(n: Blocks, metadata: Mapping[str, Any]) -> Value:
    """Token and type, added. (llama.cpp takes all tokens to be of the first type.)"""
    x, rows = n.embed(), metadata.get("tokenizer.ggml.token_type_count", 1)
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
        raise ModelFileError(f"tokenizer.ggml.token_type_count is {rows!r}, but must be a whole number")
    if rows < 2 and not n.w.has("token_types.weight"):
        return x  # DistilBERT, whose converter writes 1 as well
    types = n.w.require("token_types.weight", rows, n.hidden)
    return n.b.add(x, n.b.embed(types, n.hidden, by="token_types", rows=rows))
