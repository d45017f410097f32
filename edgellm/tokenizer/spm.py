"""SentencePiece vocabularies of the BPE kind (Llama 2, Gemma 1-3), through the `sentencepiece` package.

Knows how text becomes ids by merging the pair with the best score; special tokens are cut out before (`special.py`).
Building the package's model from a GGUF and keeping it on disk is `spm_model.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import vocab
from .spm_model import load_processor

SPACE = "\u2581"


class SPMVocabulary:
    """Text without special tokens <-> ids. Raises ModelFileError for a vocabulary it cannot use."""

    defaults: Mapping[str, int | None] = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
    default_space_prefix = True
    default_add_bos = True
    needs_bos = False

    def __init__(self, metadata: Mapping[str, Any], types: vocab.Types) -> None:
        self._types = types
        self._processor = load_processor(metadata, types)
        self._space_prefix = vocab.get_flag(metadata, "add_space_prefix", self.default_space_prefix)

    def find(self, text: str) -> int | None:
        """Return the id of a token's own text, spelled as in the file."""
        token: int = self._processor.piece_to_id(text)
        return token if self.text_of(token) == text else None

    def text_of(self, token: int) -> str:
        """Return a token's text as the file spells it."""
        text: str = self._processor.id_to_piece(token)
        return text

    def prepare(self) -> None:
        """Do nothing: everything was built with the processor."""

    def encode(self, text: str, after_special: bool) -> list[int]:
        """Return the ids of a text that holds no special token; after one, and at the start, it is prefixed."""
        if self._space_prefix and after_special:
            text = " " + text
        ids: list[int] = self._processor.encode(text.replace(" ", SPACE))
        return ids

    def bytes_of(self, token: int) -> bytes:
        """Return what a token of any type but control stands for."""
        text, kind = self.text_of(token), self._types[token]
        if kind == vocab.USER_DEFINED:
            return text.encode()
        if kind == vocab.BYTE:
            return vocab.parse_byte(text)
        return text.replace(SPACE, " ").encode()
