"""WordPiece vocabularies (Schuster and Nakajima 2012; BERT's form: Devlin et al. 2019), through Hugging Face `tokenizers`.

Knows how text becomes ids: cleaned, cut at white space and punctuation, then the longest pieces from the left. A GGUF marks the
beginning of a word with a lower bar, where BERT's own files mark the inside with ##. Special tokens are cut out before
(`special.py`). Source of the keys: llama.cpp, src/llama-vocab.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ModelFileError
from . import vocab

if TYPE_CHECKING:
    from tokenizers import Tokenizer as HFTokenizer

SPACE = "\u2581"
INSIDE = "##"
LONGEST_WORD = 100
"""Characters of a word; a longer one is one unknown token, as in BERT's own code."""
_KEY = "tokenizer.ggml.tokens"


class WordPieceVocabulary:
    """Text without special tokens <-> ids. Raises ModelFileError for a vocabulary it cannot use."""

    default_space_prefix = True
    default_add_bos = True
    needs_bos = False

    def __init__(self, metadata: Mapping[str, Any], types: vocab.Types) -> None:
        self._texts = vocab.decode_texts(vocab.raw_texts(metadata, _KEY), _KEY)
        self._ids = {text: i for i, text in enumerate(self._texts)}
        self._types = types
        count = len(self._texts)
        cls = vocab.get_id(metadata, "cls_token_id", count, self._ids.get("[CLS]"))
        separator = vocab.get_id(metadata, "seperator_token_id", count, self._ids.get("[SEP]"))  # GGUF's spelling
        self.defaults: Mapping[str, int | None] = {
            "bos_token_id": cls,
            "eos_token_id": separator,
            "unknown_token_id": self._ids.get("[UNK]"),
        }
        unknown = vocab.get_id(metadata, "unknown_token_id", count, self.defaults["unknown_token_id"])
        if unknown is None:
            raise ModelFileError("the vocabulary has no [UNK] token and no tokenizer.ggml.unknown_token_id")
        self._unknown = self._texts[unknown]
        self._lowercase = vocab.get_flag(metadata, "normalizer.lowercase", not self._has_capitals())
        self._strip_accents = vocab.get_flag(metadata, "normalizer.strip_accents", self._lowercase)
        self._model: HFTokenizer | None = None

    def find(self, text: str) -> int | None:
        """Return the id of a token's own text, spelled as in the file."""
        return self._ids.get(text)

    def text_of(self, token: int) -> str:
        """Return a token's text as the file spells it."""
        return self._texts[token]

    def prepare(self) -> None:
        """Build the cutter. Called once, when the types are final."""
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

        pieces = {self._piece(text, kind): i for i, (text, kind) in enumerate(self._typed())}
        model = models.WordPiece(
            pieces,
            unk_token=self._unknown,
            max_input_chars_per_word=LONGEST_WORD,
            continuing_subword_prefix=INSIDE,
        )
        self._model = Tokenizer(model)
        self._model.normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=True,
            strip_accents=self._strip_accents,
            lowercase=self._lowercase,
        )
        self._model.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def encode(self, text: str, after_special: bool) -> list[int]:
        """Return the ids of a text that holds no special token."""
        assert self._model is not None, "prepare() comes first"
        ids: list[int] = self._model.encode(text, add_special_tokens=False).ids
        return ids

    def bytes_of(self, token: int) -> bytes:
        """Return what a token of any type but control stands for."""
        return self._texts[token].replace(SPACE, " ").encode()

    def _typed(self) -> list[tuple[str, int]]:
        return list(zip(self._texts, self._types.tolist(), strict=True))

    def _has_capitals(self) -> bool:
        """Whether the model tells capitals from small letters: older files do not say, but their tokens do."""
        return any(kind == vocab.NORMAL and any("A" <= c <= "Z" for c in text) for text, kind in self._typed())

    @staticmethod
    def _piece(text: str, kind: int) -> str:
        """A token as BERT spells it."""
        if kind in (vocab.CONTROL, vocab.UNKNOWN):
            return text
        return text[1:] if text.startswith(SPACE) else INSIDE + text
