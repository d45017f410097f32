"""Text <-> token ids, as the model file's own vocabulary wants it.

The facade: special tokens, BOS and EOS, and bytes are handled here. Merging is `bpe.py`, `spm.py` or `wordpiece.py`, cutting out
special tokens `special.py`, what the metadata says `vocab.py`, text that comes token by token `stream.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..errors import ModelFileError, OptionError, UnsupportedError
from . import vocab
from .special import Splitter, repair
from .stream import TextStream

if TYPE_CHECKING:
    from ..gguf import GGUFFile

__all__ = ["TextStream", "Tokenizer"]

_KINDS = {"gpt2": "bpe", "gemma4": "bpe", "llama": "spm", "bert": "wordpiece"}


class _Vocabulary(Protocol):
    default_add_bos: bool
    needs_bos: bool
    default_space_prefix: bool

    @property
    def defaults(self) -> Mapping[str, int | None]: ...
    def find(self, text: str) -> int | None: ...
    def text_of(self, token: int) -> str: ...
    def prepare(self) -> None: ...
    def encode(self, text: str, after_special: bool) -> list[int]: ...
    def bytes_of(self, token: int) -> bytes: ...


class Tokenizer:
    """The tokenizer of one model file.

    kind: "bpe", "spm" or "wordpiece". bos_id, eos_id: None where the vocabulary has none. add_bos, add_eos: what the model wants
    around a prompt. eog_ids: every id that ends generation.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        """Build from a GGUF's metadata. Raises ModelFileError, or UnsupportedError for a kind or rule not known."""
        self.kind = _get_kind(metadata)
        self.vocab_size = vocab.count_tokens(metadata)
        self._types = vocab.load_types(metadata, self.vocab_size)
        self._vocabulary = _make_vocabulary(self.kind, metadata, self._types)
        self._bytes: dict[int, bytes] = {}  # of ids that were asked for: a server shows each again and again
        self._read_ids(metadata)
        self._read_flags(metadata)
        self._vocabulary.prepare()
        self._splitter = self._make_splitter(metadata)

    @classmethod
    def from_gguf(cls, source: str | os.PathLike[str] | GGUFFile) -> Tokenizer:
        """Build from a model file, or one that holds only a vocabulary; the file need not stay open."""
        if isinstance(source, (str, os.PathLike)):
            from ..gguf import open_gguf

            with open_gguf(source) as file:
                return cls(file.metadata)
        return cls(source.metadata)

    def encode(
        self, text: str, special: bool = False, add_bos: bool | None = None, add_eos: bool | None = None
    ) -> list[int]:
        """Return the ids of a text.

        special: read the texts of control tokens as such, and add BOS and EOS as the model wants; otherwise the text is
        plain, nothing is added. add_bos, add_eos: add or leave out whatever `special` says. BOS is never doubled.
        Raises OptionError for a BOS or EOS that the vocabulary lacks.
        """
        wants_bos = special and self.add_bos if add_bos is None else add_bos
        wants_eos = special and self.add_eos if add_eos is None else add_eos
        return self._frame(self._encode(text, special, ()), wants_bos, wants_eos)

    def encode_chat(self, text: str, protected: Sequence[int] = ()) -> list[int]:
        """Return the ids of a rendered chat template, with BOS as the model wants and no EOS.

        protected: sorted places in the text that come from a user: no control token may cover one.
        """
        return self._frame(self._encode(text, True, protected), self.add_bos, False)

    def encode_inside(self, text: str) -> list[int]:
        """Return the ids of plain text that goes on after other text: nothing is put before it."""
        return self._encode(text, False, (), after_special=False)

    def decode(self, ids: Iterable[int], special: bool = False) -> str:
        """Return the text of ids; bytes that are not UTF-8 become U+FFFD. special: show control tokens by their names.

        The inverse of `encode`: a space prefix that `encode` would have added is taken away.
        """
        parts = []
        at_start = True
        for token in ids:
            piece = self.token_bytes(token)
            if self._add_space_prefix and at_start and piece.startswith(b" "):
                piece = piece[1:]
            at_start = self._types[token] in (vocab.CONTROL, vocab.UNKNOWN, vocab.USER_DEFINED)
            parts.append(self.token_text(token).encode() if special and self.is_control(token) else piece)
        return b"".join(parts).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes a token adds to the text; none for control and unused tokens."""
        found = self._bytes.get(token)
        if found is None:
            is_text = self._type(token) not in (vocab.CONTROL, vocab.UNKNOWN, vocab.UNUSED)
            found = self._bytes[token] = self._vocabulary.bytes_of(token) if is_text else b""
        return found

    def token_text(self, token: int) -> str:
        """Return a token's name as the file spells it."""
        self._type(token)
        return self._vocabulary.text_of(token)

    def is_control(self, token: int) -> bool:
        """Return whether a token is a control token, which stands for no text."""
        return self._type(token) in (vocab.CONTROL, vocab.UNKNOWN)

    def find_token(self, text: str) -> int | None:
        """Return the control or user-defined token that a text is, or None."""
        return self._splitter.get(text)

    @property
    def control_ids(self) -> list[int]:
        """The ids of all control tokens."""
        ids: list[int] = np.flatnonzero(np.isin(self._types, (vocab.CONTROL, vocab.UNKNOWN))).tolist()
        return ids

    def find_guarded(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """Return where the next spelling of a token that users must not spell begins and ends, or None."""
        return self._splitter.guard.find(text, start)

    @property
    def guarded_texts(self) -> list[str]:
        """The texts of the tokens that users must not spell."""
        return self._splitter.guard.texts

    def _type(self, token: int) -> int:
        if not 0 <= token < self.vocab_size:
            raise OptionError(f"token id {token} is not in the vocabulary; ids go from 0 to {self.vocab_size - 1}")
        return int(self._types[token])

    def _encode(self, text: str, special: bool, protected: Sequence[int], after_special: bool = True) -> list[int]:
        if not isinstance(text, str):
            raise OptionError(f"the text must be a str, not {type(text).__name__}")
        ids: list[int] = []
        for piece in self._splitter.split(repair(text), special, protected):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                ids.extend(self._vocabulary.encode(piece, after_special))
            after_special = isinstance(piece, int)
        return ids

    def _frame(self, ids: list[int], add_bos: bool, add_eos: bool) -> list[int]:
        if add_bos and ids[:1] != [self._need("BOS", self.bos_id)]:
            ids.insert(0, self._need("BOS", self.bos_id))
        if add_eos and ids[-1:] != [self._need("EOS", self.eos_id)]:
            ids.append(self._need("EOS", self.eos_id))
        return ids

    @staticmethod
    def _need(name: str, token: int | None) -> int:
        if token is None:
            raise OptionError(f"this vocabulary has no {name} token to add")
        return token

    def _read_ids(self, metadata: Mapping[str, Any]) -> None:
        ids = {
            name: vocab.get_id(metadata, name, self.vocab_size, default)
            for name, default in self._vocabulary.defaults.items()
        }
        self.bos_id, self.eos_id = ids["bos_token_id"], ids["eos_token_id"]
        self.unk_id = ids["unknown_token_id"]
        self.pad_id = vocab.get_id(metadata, "padding_token_id", self.vocab_size)
        self.eog_ids = vocab.find_end_ids(metadata, self._types, self._vocabulary.find)
        if self.eos_id is not None:
            self.eog_ids |= {self.eos_id}

    def _read_flags(self, metadata: Mapping[str, Any]) -> None:
        add_bos = vocab.get_flag(metadata, "add_bos_token", self._vocabulary.default_add_bos)
        self.add_bos = (add_bos or self._vocabulary.needs_bos) and self.bos_id is not None
        add_eos = vocab.get_flag(metadata, "add_eos_token", self.kind == "wordpiece")
        self.add_eos = add_eos and self.eos_id is not None
        space_prefix = vocab.get_flag(metadata, "add_space_prefix", self._vocabulary.default_space_prefix)
        # The mark of a word's beginning is WordPiece's own: it stands for no space of the text, whatever a file says.
        self._add_space_prefix = self.kind == "wordpiece" or (space_prefix and self.kind == "spm")

    def _make_splitter(self, metadata: Mapping[str, Any]) -> Splitter:
        def texts(*kinds: int) -> dict[str, int]:
            ids = np.flatnonzero(np.isin(self._types, kinds)).tolist()
            return {self._vocabulary.text_of(i): i for i in ids}

        control, user_defined = texts(vocab.CONTROL, vocab.UNKNOWN), texts(vocab.USER_DEFINED)
        # Some files list turn markers as user-defined: Command R's <|START_OF_TURN_TOKEN|>.
        marks = {
            i for t, i in user_defined.items() if t.startswith(("<|", "<\uff5c")) and t.endswith(("|>", "\uff5c>"))
        }
        name = str(metadata.get("general.name", "")).lower()
        rstrip = set(control.values()) if self.kind == "spm" and ("phi-3" in name or "phi3" in name) else set()
        rstrip -= {i for t in ("<unk>", "<s>", "<|endoftext|>") if (i := control.get(t)) is not None}
        return Splitter(control, user_defined, frozenset(marks.union(control.values())), frozenset(rstrip))


def _get_kind(metadata: Mapping[str, Any]) -> str:
    model = metadata.get("tokenizer.ggml.model")
    if model is None:
        raise ModelFileError("the metadata lacks tokenizer.ggml.model: the file holds no vocabulary")
    if model not in _KINDS:
        known = ", ".join(_KINDS)
        raise UnsupportedError(
            f"tokenizer.ggml.model is {model!r}; edgellm knows {known}: take a model with one of these"
        )
    return _KINDS[model]


def _make_vocabulary(kind: str, metadata: Mapping[str, Any], types: vocab.Types) -> _Vocabulary:
    if kind == "bpe":
        from .bpe import BPEVocabulary

        return BPEVocabulary(metadata, types)
    if kind == "wordpiece":
        from .wordpiece import WordPieceVocabulary

        return WordPieceVocabulary(metadata, types)
    from .spm import SPMVocabulary

    return SPMVocabulary(metadata, types)
