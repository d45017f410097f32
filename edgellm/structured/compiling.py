"""Compiles grammars, within bounds of stack and time, and says in one line what is wrong with one.

Knows llguidance's compiler and its complaints, no model. Next hop: `vocabulary.py` keeps what is compiled.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ..errors import EdgeLLMError, OptionError, UnsupportedError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from .grammar import Grammar

MAX_COMPILE_S = 15
_STACK_BYTES = 64 << 20  # the compiler recurses; the stack of a caller's thread may be half a megabyte
_UNSUPPORTED = ("Unimplemented", "Unknown format", "not supported", "not yet supported", "retriev", "lookaround")
_lock = threading.Lock()
_Made = TypeVar("_Made")


def compile_grammar(tokens: LLTokenizer, grammar: Grammar) -> LLMatcher:
    """Compile a grammar and look at its first step, which finds what is impossible from the start.

    Raises OptionError or UnsupportedError, in one line.
    """
    from llguidance import LLMatcher, LLParserLimits

    def make() -> LLMatcher:
        matcher = LLMatcher(tokens, grammar.text, log_level=0, limits=LLParserLimits(verbose_errors=False))
        if not matcher.is_error():
            matcher.compute_bitmask()
        return matcher

    matcher = _call(make, grammar)
    if matcher.is_error():
        raise _explain(grammar, matcher.get_error())
    return matcher


def check_grammar(grammar: Grammar) -> None:
    """Raise what `compile_grammar` would, where that does not depend on a model."""
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(verbose_errors=False)
    is_wrong, messages = _call(lambda: LLMatcher.validate_grammar_with_warnings(grammar.text, limits=limits), grammar)
    if is_wrong:
        raise _explain(grammar, messages[0])


def _call(function: Callable[[], _Made], grammar: Grammar) -> _Made:
    """Call the compiler in a thread of its own: for its stack, and because nothing can interrupt it.

    One that takes too long is left behind.
    """
    made: list[_Made] = []
    faults: list[BaseException] = []

    def run() -> None:
        try:
            made.append(function())
        except BaseException as error:  # a panic of the compiler is no Exception
            faults.append(error)

    thread = _start_with_stack(run)
    thread.join(MAX_COMPILE_S)
    if thread.is_alive():
        raise OptionError(f"{grammar.name} takes longer than {MAX_COMPILE_S} seconds to compile; make it simpler")
    if faults:
        raise OptionError(f"{grammar.name} cannot be compiled: {_one_line(str(faults[0]))}")
    return made[0]


def _start_with_stack(function: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=function, name="edgellm-grammar", daemon=True)
    with _lock:  # the size holds for all threads that start meanwhile, which costs them nothing
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    return thread


def _explain(grammar: Grammar, message: str) -> EdgeLLMError:
    """Turn the compiler's complaint into one line of ours."""
    text = _one_line(message)
    if "NoExtension" in text:
        return OptionError(f"{grammar.name} is impossible: no text has this form")
    if "coerce_one_of" in text:
        text = "oneOf, unless its cases clearly exclude one another; write anyOf"
        return UnsupportedError(f"{grammar.name} asks for what cannot be kept: {text}")
    if any(mark in text for mark in _UNSUPPORTED):
        return UnsupportedError(f"{grammar.name} asks for what cannot be kept: {text}; leave that out")
    return OptionError(f"{grammar.name} cannot be used: {text}")


def _one_line(message: str, limit: int = 300) -> str:
    """A complaint on one line, without the parser's state, and without the drawing that shows the place in an expression."""
    text = " ".join(message.split("<state>")[0].split())
    if found := re.search(r"regex parse error: .*? error: (.*?)(?: \d+ \| |$)", text):
        text = found[1]
    text = re.sub(r" \d+ \| .*$", "", text)
    return text if len(text) <= limit else text[:limit] + " ..."
