"""Answers that must have a form: JSON, a schema, a regular expression, a grammar, one of several texts."""

from __future__ import annotations

from collections.abc import Collection

from ..choosing import Constraint
from ..config import SamplingParams
from ..errors import UnsupportedError
from ..tokenizer import Tokenizer


def make_constraint(params: SamplingParams, tokenizer: Tokenizer, eog_ids: Collection[int]) -> Constraint:
    """Return what keeps an answer in the form that params ask for."""
    raise UnsupportedError("structured output is being built")
