"""How a tiny random model of one architecture is made. A file of this folder for each: `RECIPE` says what Transformers builds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """A model of Transformers' own classes.

    config, model: names of classes in transformers. options: of the config; vocab_size 288 unless given.
    vocabulary: "bpe" or "spm", the made-up tokens that are written into the file.
    metadata: what the converter would have taken from files that a made-up model has not.
    tokens: length of the text; it should cross every window. is_encoder: `logits` are the last hidden states, all tokens see
    each other, and llama.cpp's are its embeddings without pooling.
    peer_differs: why llama.cpp's answer is not the model's: its figures are printed, and nothing is asked of them.
    """

    config: str
    model: str
    options: dict[str, Any] = field(default_factory=dict)
    vocabulary: str = "bpe"
    metadata: dict[str, Any] = field(default_factory=dict)
    tokens: int = 200
    is_encoder: bool = False
    peer_differs: str = ""
