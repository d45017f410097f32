"""Constraints over a vocabulary of single bytes and a few pairs, so that tests can walk any text and draw any answer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tiny_vocabulary import make_bpe

from edgellm.config import SamplingParams
from edgellm.structured import make_constraint
from edgellm.structured.constraint import GrammarConstraint
from edgellm.tokenizer import Tokenizer

VOCAB_SIZE = 1100  # bytes, about 750 merges, and the rest unused


@functools.lru_cache(maxsize=1)
def tokenizer() -> Tokenizer:
    return Tokenizer(make_bpe(VOCAB_SIZE))


def make(**form: Any) -> GrammarConstraint:
    """A constraint for one of json, schema, regex, grammar, choices."""
    constraint = make_constraint(SamplingParams(**form), tokenizer(), tokenizer().eog_ids)
    assert isinstance(constraint, GrammarConstraint)
    return constraint


def allowed(constraint: GrammarConstraint, num_logits: int = VOCAB_SIZE) -> set[int]:
    """The ids that may come next."""
    logits = np.zeros(num_logits, np.float32)
    constraint.mask(logits)
    assert set(np.unique(logits)) <= {0.0, -np.inf}
    return set(np.flatnonzero(logits == 0.0).tolist())


def accepts(text: str, **form: Any) -> bool:
    """Say whether a text can be the whole answer, and whether the end is allowed after it."""
    constraint = make(**form)
    for token_id in tokenizer().encode(text):
        if token_id not in allowed(constraint):
            return False
        constraint.accept(token_id)
    return tokenizer().eog_ids <= allowed(constraint)


Prefers = Callable[[bytes], float]


def answer(constraint: GrammarConstraint, prefers: Prefers, max_tokens: int = 400) -> tuple[str, bool]:
    """What a model says whose logit of each token is `prefers` of its bytes, always the likeliest: (text, has ended).

    A token that ends the answer has a logit of -1.
    """
    known = tokenizer()
    scores = [-1.0 if i in known.eog_ids else prefers(known.token_bytes(i)) for i in range(VOCAB_SIZE)]
    base: NDArray[np.float32] = np.array(scores, np.float32)
    text = b""
    for _ in range(max_tokens):
        if constraint.is_complete:
            return text.decode(), True
        logits = base.copy()
        constraint.mask(logits)
        token_id = int(np.argmax(logits))
        constraint.accept(token_id)
        if token_id in known.eog_ids:
            return text.decode(), True
        text += known.token_bytes(token_id)
    return text.decode("utf-8", "replace"), False
