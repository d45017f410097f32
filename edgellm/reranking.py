"""Rerank: how well each of some documents answers a query, by a model that reads both at once.

Knows how a pair is written for a model, and ids. Source of the forms: llama.cpp's server (tools/server), and Devlin et al. 2019
for the two parts of a pair, which models with token types tell apart (llama.cpp does not). Next hop: `embedding.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .embedding import Text
from .errors import OptionError
from .tokenizer import Tokenizer

TEMPLATE_KEY = "tokenizer.chat_template.rerank"
_PLACE = re.compile(r"\{(query|document)\}")


@dataclass(frozen=True)
class Ranking:
    """scores: f32[N], in the order of the documents, larger is better: as the model gives them, a logit or a probability."""

    scores: NDArray[np.float32]

    @property
    def order(self) -> list[int]:
        """Indices of the documents, best first; equal ones in their own order."""
        indices: list[int] = np.argsort(-self.scores, kind="stable").tolist()
        return indices

    def top(self, n: int) -> list[tuple[int, float]]:
        """(index, score) of the best n."""
        return [(i, float(self.scores[i])) for i in self.order[:n]]


def write_pair(tokenizer: Tokenizer, metadata: Mapping[str, Any], query: str, document: str) -> Text:
    """A query and a document as the model reads them: by the file's template, or one after the other, apart."""
    for name, text in (("query", query), ("document", document)):
        if not isinstance(text, str):
            raise OptionError(f"the {name} must be a str, not {type(text).__name__}")
    template = metadata.get(TEMPLATE_KEY)
    if isinstance(template, str):
        return Text(_render(tokenizer, template, {"query": query, "document": document}))
    first = tokenizer.encode(query, add_bos=tokenizer.add_bos, add_eos=tokenizer.add_eos)
    second = tokenizer.encode(document, add_eos=tokenizer.add_eos)
    if metadata.get("tokenizer.ggml.token_type_count", 1) == 1 and tokenizer.add_eos and tokenizer.eos_id is not None:
        first = [*first, tokenizer.eos_id]  # RoBERTa, which has no types, puts two of them between the parts
        return Text(first + second)
    return Text(first + second, [0] * len(first) + [1] * len(second))


def _render(tokenizer: Tokenizer, template: str, texts: Mapping[str, str]) -> list[int]:
    """Ids of a template with its places filled; what is filled in never becomes a control token."""
    parts, protected, length, done = list[str](), list[int](), 0, 0
    for match in _PLACE.finditer(template):
        before, text = template[done : match.start()], texts[match[1]]
        parts += [before, text]
        protected += range(length + len(before), length + len(before) + len(text))
        length, done = length + len(before) + len(text), match.end()
    return tokenizer.encode_chat("".join([*parts, template[done:]]), protected)
