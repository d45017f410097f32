"""Answers that must have a form: JSON, a schema, a regular expression, a grammar, one of several texts.

`make_constraint` makes of a request what the engine asks at every token. llguidance does the parsing; it is imported when
the first such request comes. Next hops: `grammar.py` turns a request into a grammar, `vocabulary.py` the model's tokens
into llguidance's, `constraint.py` walks along.
"""

from __future__ import annotations

from collections.abc import Collection

from ..choosing import Constraint
from ..config import SamplingParams
from ..tokenizer import Tokenizer
from .response_format import from_response_format
from .result import result_of

__all__ = ["check_form", "from_response_format", "make_constraint", "result_of"]


def check_form(params: SamplingParams) -> None:
    """Raise what `make_constraint` would, where that does not depend on a model: before one is loaded."""
    if params.is_structured:
        from .compiling import check_grammar
        from .grammar import grammar_of

        check_grammar(grammar_of(params))


def make_constraint(params: SamplingParams, tokenizer: Tokenizer, eog_ids: Collection[int]) -> Constraint:
    """Return what keeps an answer in the form that params ask for.

    Raises OptionError for a schema, expression or grammar that is wrong, too large or impossible, UnsupportedError for one
    that asks for what cannot be kept; both name it.
    """
    from .constraint import GrammarConstraint
    from .grammar import grammar_of
    from .vocabulary import vocabulary_of

    grammar = grammar_of(params)  # a mistake in it costs no vocabulary
    return GrammarConstraint(vocabulary_of(tokenizer, eog_ids), grammar)
