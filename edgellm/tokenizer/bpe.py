"""Byte-pair vocabularies: GPT-2's byte alphabet, and SPM-style BPE (Gemma 4), through Hugging Face `tokenizers`.

Knows how text becomes ids by merges; special tokens are cut out before (`special.py`), how words are split is
`split_rules.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ModelFileError
from . import vocab
from .split_rules import SplitRule, get_rule

if TYPE_CHECKING:
    from tokenizers import Tokenizer as HFTokenizer

SPACE = "\u2581"


@lru_cache(1)
def _byte_alphabet() -> dict[str, int]:
    """Map GPT-2's printable stand-ins to bytes: printable bytes stand for themselves, the rest follow from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(b): b for b in printable}
    others = [b for b in range(256) if chr(b) not in alphabet]
    return alphabet | {chr(0x100 + i): b for i, b in enumerate(others)}


class BPEVocabulary:
    """Text without special tokens <-> ids. Raises ModelFileError or UnsupportedError for a vocabulary it cannot use."""

    defaults: Mapping[str, int | None] = {"bos_token_id": None, "eos_token_id": None, "unknown_token_id": None}
    default_space_prefix = False

    def __init__(self, metadata: Mapping[str, Any], types: vocab.Types) -> None:
        pre = "gemma4" if metadata.get("tokenizer.ggml.model") == "gemma4" else metadata.get("tokenizer.ggml.pre")
        self.rule = get_rule(pre)
        self.default_add_bos, self.needs_bos = self.rule.add_bos, self.rule.needs_bos
        self._texts = vocab.decode_texts(vocab.raw_texts(metadata, "tokenizer.ggml.tokens"), "tokenizer.ggml.tokens")
        self._ids = {text: i for i, text in enumerate(self._texts)}
        self._types = types
        self._model: HFTokenizer | None = None
        # A file has no merges only where nothing can merge; otherwise they are lost, and ids would be wrong.
        can_do_without = "tokenizer.ggml.merges" not in metadata and all(
            len(text) == 1 for text, kind in zip(self._texts, types.tolist(), strict=True) if kind == vocab.NORMAL
        )
        self._merges = [] if can_do_without else vocab.raw_texts(metadata, "tokenizer.ggml.merges")

    def find(self, text: str) -> int | None:
        """Return the id of a token's own text, spelled as in the file."""
        return self._ids.get(text)

    def text_of(self, token: int) -> str:
        """Return a token's text as the file spells it."""
        return self._texts[token]

    def prepare(self) -> None:
        """Build the merger. Called once, when the types are final: a control token must not come out of merging."""
        ids = dict(self._ids)
        for token in np.flatnonzero((self._types == vocab.CONTROL) | (self._types == vocab.UNKNOWN)).tolist():
            ids.pop(self._texts[token], None)
        merges = _split_merges(vocab.decode_texts(self._merges, "tokenizer.ggml.merges"))
        self._merges = []
        self._model = _make_model(ids, merges, self.rule)

    def encode(self, text: str, after_special: bool) -> list[int]:
        """Return the ids of a text that holds no special token."""
        assert self._model is not None, "prepare() comes first"
        if not self.rule.byte_level:
            text = text.replace(" ", SPACE)
        ids: list[int] = self._model.encode(text, add_special_tokens=False).ids
        return ids

    def bytes_of(self, token: int) -> bytes:
        """Return what a token of any type but control stands for."""
        text, kind = self._texts[token], self._types[token]
        if kind == vocab.USER_DEFINED:
            return text.encode()
        if kind == vocab.BYTE:
            return vocab.parse_byte(text)
        if not self.rule.byte_level:
            return text.replace(SPACE, " ").encode()
        alphabet = _byte_alphabet()
        return b"".join(bytes((alphabet[c],)) if c in alphabet else c.encode() for c in text)


def _split_merges(lines: list[str]) -> list[tuple[str, str]]:
    """Cut each merge at its first space; the space at its very start, if any, belongs to the first half."""
    flat = " ".join(lines).split(" ")
    if len(flat) == 2 * len(lines) and "" not in flat:  # the rule, and quick: one space in every line
        return list(zip(flat[::2], flat[1::2], strict=True))
    cuts = [(line, line.find(" ", 1)) for line in lines]
    return [(line[:at], line[at + 1 :]) for line, at in cuts if at > 0]


def _make_model(ids: dict[str, int], merges: list[tuple[str, str]], rule: SplitRule) -> HFTokenizer:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    def make(pairs: list[tuple[str, str]]) -> Any:
        return models.BPE(ids, pairs, ignore_merges=rule.ignore_merges, byte_fallback=not rule.byte_level)

    try:
        model = make(merges)
    except Exception:  # tokenizers raises bare Exception for a merge of tokens the vocabulary lacks: those cannot apply
        merges = [(a, b) for a, b in merges if a in ids and b in ids and a + b in ids]
        try:
            model = make(merges)
        except Exception as error:
            raise ModelFileError(f"the vocabulary and its merges do not fit together: {error}") from None
    tokenizer = Tokenizer(model)
    steps: list[Any] = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule.patterns]
    if rule.byte_level:
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return tokenizer
