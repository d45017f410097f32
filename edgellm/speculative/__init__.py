"""Guess several tokens, let the model check them in one step: the same text, sooner. Next hop: `speculator.py`."""

from __future__ import annotations

from .corpus import Corpus, CorpusProposer
from .cost import MAX_DRAFT
from .draft import DraftModel, DraftProposer
from .ngram import NgramProposer
from .proposer import Proposer
from .speculator import Speculator

__all__ = [
    "MAX_DRAFT",
    "Corpus",
    "CorpusProposer",
    "DraftModel",
    "DraftProposer",
    "NgramProposer",
    "Proposer",
    "Speculator",
]
