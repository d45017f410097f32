"""What a file says of making one vector, or scores, of a text's hidden states: `{architecture}.pooling_type` and small matrices.

Any architecture may have them. Source of keys and tensors: llama.cpp, gguf-py. Next hop: `kernels/pooling.py` has the arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ModelFileError, UnsupportedError
from ..kernels.ops import Builder, Program, Value
from ..kernels.pooling import KINDS, Dense, Pooling
from .hparams import HParams
from .weights import Weights


def read_pooling(h: HParams, w: Weights, hidden: int, of_scores: str = "cls", softmax: bool = False) -> Pooling:
    """How this file pools; "mean" where it does not say, "rank" if it has a matrix that makes scores.

    of_scores: the token whose hidden state scores are made of, "cls" or "last". softmax: of the scores.
    Raises ModelFileError or UnsupportedError naming the key or tensor.
    """
    scores = _scores(h, w, hidden)
    number = h.integer("pooling_type", 4 if scores else 1, low=-1)
    if number >= len(KINDS):
        raise UnsupportedError(f"pooling of the type {number} is not supported; edgellm knows {', '.join(KINDS)}")
    kind = "mean" if number < 0 else KINDS[number]
    if kind == "rank" and not scores:
        raise ModelFileError("the file says that it ranks (pooling_type 4) and lacks the tensor cls.output.weight")
    dense, width = _dense(h, w, hidden)
    return Pooling(kind, dense, width, scores, of_scores, softmax)


def finish_encoder(b: Builder, h: HParams, w: Weights, x: Value) -> Program:
    """The whole program of an encoder, whose result is x: hidden states and no logits."""
    head = read_pooling(h, w, x.width)
    w.check_all_used(h.architecture)
    return b.finish(b.logit_rows(x), makes_logits=False, pooling=head)


def _scores(h: HParams, w: Weights, hidden: int) -> tuple[Dense, ...]:
    """The classifier of a reranker: one matrix, or two with tanh between them (RoBERTa)."""
    labels = h.get("classifier.output_labels", ())
    if isinstance(labels, (str, bytes)) or not (isinstance(labels, Sequence) or hasattr(labels, "__len__")):
        raise ModelFileError("classifier.output_labels must be a list of names")
    count = max(1, len(labels))
    first, last = w.optional("cls.weight", hidden, hidden), w.optional("cls.output.weight", count, hidden)
    first_bias, last_bias = w.optional("cls.bias", hidden), w.optional("cls.output.bias", count)
    steps = [] if first is None else [Dense(first, first_bias, "tanh")]
    return () if last is None else (*steps, Dense(last, last_bias))


def _dense(h: HParams, w: Weights, hidden: int) -> tuple[tuple[Dense, ...], int]:
    """Sentence Transformers' modules 2_Dense and 3_Dense, which have no bias in these files."""
    middle, out = h.integer("dense_2_feat_out", 0, low=0), h.integer("dense_3_feat_out", 0, low=0)
    steps, width = list[Dense](), hidden
    if middle:
        steps.append(Dense(w.require("dense_2.weight", middle, width)))
        width = middle
    if out:
        steps.append(Dense(w.require("dense_3.weight", out, width)))
        width = out
    return tuple(steps), width if steps else 0
