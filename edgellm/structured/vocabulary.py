"""A model's tokens as llguidance wants them, made once a model and kept as long as its tokenizer lives.

Knows tokens and compiled grammars, no request. For 262,144 tokens it takes about two seconds and 100 MB, for 49,152 a
quarter of a second: only a model that is asked for structured output pays. Next hop: `constraint.py`.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import EdgeLLMError, OptionError, UnsupportedError
from ..tokenizer import Tokenizer
from .bitmask import Bits, bits_of

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from .grammar import Grammar

_BLANKS = b" \t\r\n"
_KEPT_GRAMMARS = 8
_STACK_BYTES = 64 << 20  # the compiler recurses; the stack of a caller's thread may be half a megabyte

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

    size: tokens it has; a model may have more logits. eog_ids: the ids that end an answer. lengths, tails: of each token's
    bytes, whether all are blanks.
    """

    def __init__(self, tokenizer: Tokenizer, eog_ids: frozenset[int]) -> None:
        self.size = tokenizer.vocab_size
        self.eog_ids = frozenset(i for i in eog_ids if 0 <= i < self.size)
        self._tokenizer = weakref.ref(tokenizer)
        self._grammars: OrderedDict[str, LLMatcher] = OrderedDict()
        self._lock = threading.Lock()
        self._parser_tokens = self._make_parser_tokens(tokenizer)

    def make_matcher(self, grammar: Grammar) -> LLMatcher:
        """Return a parser at its start. Raises as `make_constraint`."""
        with self._lock:
            matcher = self._grammars.pop(grammar.text, None)
            if matcher is None:
                matcher = _compile(self._parser_tokens, grammar)
            self._grammars[grammar.text] = matcher
            if len(self._grammars) > _KEPT_GRAMMARS:
                self._grammars.popitem(last=False)
            return matcher.deep_copy()

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes a token adds to the text."""
        return self._get_tokenizer().token_bytes(token_id)

    @cached_property
    def starting_blank(self) -> Bits:
        """Bits of the tokens whose text begins with a space, a tab or a line break."""
        tokenizer = self._get_tokenizer()
        return bits_of((i for i in range(self.size) if tokenizer.token_bytes(i)[:1] in _FIRST_BLANKS), self.size)

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


_FIRST_BLANKS = {bytes([byte]) for byte in _BLANKS}


class _Source:
    """What llguidance asks a tokenizer for."""

    def __init__(self, tokenizer: Tokenizer, eos_id: int, encode: Any) -> None:
        self.eos_token_id = eos_id
        self.bos_token_id = tokenizer.bos_id
        self.special_token_ids = [i for i in range(tokenizer.vocab_size) if tokenizer.is_control(i)]
        self.tokens = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
        for i in self.special_token_ids:  # no byte of UTF-8: a control token never is text
            self.tokens[i] = b"\xff" + tokenizer.token_text(i).encode()
        self._encode = encode

    def __call__(self, text: str) -> list[int]:
        ids: list[int] = self._encode(text)
        return ids


def _compile(tokens: LLTokenizer, grammar: Grammar) -> LLMatcher:
    """Compile a grammar and look at its first step, which finds what is impossible from the start."""
    from llguidance import LLMatcher, LLParserLimits

    matcher: LLMatcher | None = None
    fault: BaseException | None = None

    def run() -> None:
        nonlocal matcher, fault
        try:
            limits = LLParserLimits(verbose_errors=False)
            matcher = LLMatcher(tokens, grammar.text, log_level=0, limits=limits)
            if not matcher.is_error():
                matcher.compute_bitmask()
        except BaseException as error:  # a panic of the compiler is no Exception
            fault = error

    _call_with_stack(run)
    if fault is not None and not isinstance(fault, Exception) and type(fault).__name__ != "PanicException":
        raise fault
    if matcher is None:
        raise OptionError(f"{grammar.name} cannot be compiled: {_one_line(str(fault))}")
    if matcher.is_error():
        raise _explain(grammar, matcher.get_error())
    return matcher


def _call_with_stack(function: Any) -> None:
    with _lock_stack:
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread = threading.Thread(target=function, name="edgellm-grammar")
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()


_lock_stack = threading.Lock()
_UNSUPPORTED = ("Unimplemented", "Unknown format", "not supported", "not yet supported", "retriev", "lookaround")


def _explain(grammar: Grammar, message: str) -> EdgeLLMError:
    """Turn the compiler's complaint into one line of ours."""
    text = _one_line(message)
    if "NoExtension" in text:
        return OptionError(f"{grammar.name} is impossible: no text has this form")
    if any(mark in text for mark in _UNSUPPORTED):
        return UnsupportedError(f"{grammar.name} asks for what cannot be kept: {text}; leave that out")
    return OptionError(f"{grammar.name} cannot be used: {text}")


def _one_line(message: str, limit: int = 300) -> str:
    """The first lines of a message, on one."""
    text = " ".join(message.split("<state>")[0].split())
    return text if len(text) <= limit else text[:limit] + " ..."
