"""A model's tokens as llguidance wants them, made once a model and kept as long as its tokenizer lives.

Knows tokens and compiled grammars, no request. For 262,144 tokens it takes about two seconds and 100 MB, for 49,152 a
quarter of a second: only a model that is asked for structured output pays. llguidance keeps Python's lock for half of that
time. Next hops: `compiling.py`, `constraint.py`.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from ..errors import UnsupportedError
from ..tokenizer import Tokenizer
from .bitmask import Bits, bits_of
from .compiling import compile_grammar

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from .grammar import Grammar

_KEPT_GRAMMARS = 8

_lock = threading.Lock()
_known: weakref.WeakKeyDictionary[Tokenizer, dict[frozenset[int], Vocabulary]] = weakref.WeakKeyDictionary()


def vocabulary_of(tokenizer: Tokenizer, eog_ids: Collection[int]) -> Vocabulary:
    """Return the vocabulary of a tokenizer, from the second call on the same one."""
    with _lock:
        made = _known.setdefault(tokenizer, {})
        key = frozenset(eog_ids)
        if key not in made:
            made[key] = Vocabulary(tokenizer, key)
        return made[key]


class Vocabulary:
    """The tokens of a model, and its last grammars.

    size: tokens it has; a model may have more logits. eog_ids: the ids that end an answer.
    """

    def __init__(self, tokenizer: Tokenizer, eog_ids: frozenset[int]) -> None:
        self.size = tokenizer.vocab_size
        self.eog_ids = frozenset(i for i in eog_ids if 0 <= i < self.size)
        self._tokenizer = weakref.ref(tokenizer)
        self._grammars: OrderedDict[str, LLMatcher] = OrderedDict()
        self._starting: dict[bytes, Bits] = {}
        self._lock = threading.Lock()
        self._parser_tokens = self._make_parser_tokens(tokenizer)

    def make_matcher(self, grammar: Grammar) -> LLMatcher:
        """Return a parser at its start. Raises as `make_constraint`."""
        with self._lock:
            matcher = self._grammars.get(grammar.text)
        if matcher is None:
            matcher = compile_grammar(self._parser_tokens, grammar)  # may take seconds: others go on meanwhile
        with self._lock:
            self._grammars[grammar.text] = matcher
            self._grammars.move_to_end(grammar.text)
            if len(self._grammars) > _KEPT_GRAMMARS:
                self._grammars.popitem(last=False)
            return matcher.deep_copy()

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes a token adds to the text."""
        return self._get_tokenizer().token_bytes(token_id)

    def starting_with(self, letters: bytes) -> Bits:
        """Return bits of the tokens whose text begins with one of some bytes."""
        if letters not in self._starting:
            get_bytes = self._get_tokenizer().token_bytes
            firsts = {letters[i : i + 1] for i in range(len(letters))}
            self._starting[letters] = bits_of((i for i in range(self.size) if get_bytes(i)[:1] in firsts), self.size)
        return self._starting[letters]

    def _encode(self, text: str) -> list[int]:
        """Ids of text inside an answer: the parser asks how what must follow is best cut into tokens."""
        return self._get_tokenizer().encode_inside(text)

    def _get_tokenizer(self) -> Tokenizer:
        tokenizer = self._tokenizer()
        assert tokenizer is not None, "the model's tokenizer is gone"
        return tokenizer

    def _make_parser_tokens(self, tokenizer: Tokenizer) -> LLTokenizer:
        from llguidance import LLTokenizer, TokenizerWrapper

        if not self.eog_ids:
            raise UnsupportedError("this model has no token that ends an answer, so no form can be kept")
        source = _Source(tokenizer, min(self.eog_ids), self._encode)
        wrapper: Any = TokenizerWrapper(source)
        made = LLTokenizer(wrapper, n_vocab=self.size, eos_token=sorted(self.eog_ids))
        wrapper.tokens = source.tokens = []  # the parser has its own copy
        return made


class _Source:
    """What llguidance asks a tokenizer for."""

    def __init__(self, tokenizer: Tokenizer, eos_id: int, encode: Callable[[str], list[int]]) -> None:
        self.eos_token_id = eos_id
        self.bos_token_id = tokenizer.bos_id
        self.special_token_ids = tokenizer.control_ids
        self.tokens = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
        for i in self.special_token_ids:  # no byte of UTF-8: a control token never is text
            self.tokens[i] = b"\xff" + tokenizer.token_text(i).encode()
        self._encode = encode

    def __call__(self, text: str) -> list[int]:
        return self._encode(text)
