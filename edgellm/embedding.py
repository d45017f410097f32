"""Embeddings: one vector for a text, made of what the model knows at each of its tokens, and scores made the same way.

Knows ids only. Next hops: `engine.py` computes the hidden states, `kernels/pooling.py` has the arithmetic after them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import EdgeLLMError, OptionError, UnsupportedError
from .gguf import GGUFFile
from .kernels import formats, pooling
from .kernels.pooling import Pooling
from .sequence import Sequence
from .shared_engine import SharedEngine

POOLINGS = ("mean", "cls", "last")
Floats = NDArray[np.float32]


class Text(NamedTuple):
    """Ids, which part of the text each is of, where models tell that apart, and how much of each adapter they get."""

    ids: list[int]
    types: list[int] | None = None
    adapters: tuple[float, ...] = ()


class Head:
    """What a model does to a text's hidden states. width: of a hidden state.

    Raises nothing: a file's tensors have been checked by then.
    """

    def __init__(self, pooling: Pooling, file: GGUFFile, width: int) -> None:
        self.pooling, self.width = pooling, width
        self._weights: Mapping[str, NDArray[Any]] = {name: _load(file, name) for name in pooling.weights}

    @property
    def size(self) -> int:
        """Numbers of a vector."""
        return self.pooling.width or self.width

    def kind(self, wanted: str | None) -> str:
        """Which of POOLINGS to use: the one asked for, or the file's. Raises OptionError where there is no answer."""
        kind = wanted if wanted is not None else self.pooling.kind
        if kind in POOLINGS:
            return kind
        names = ", ".join(POOLINGS)
        if wanted is not None and kind != "none":
            raise OptionError(f"pooling must be one of {names}, not {wanted!r}")
        if kind == "none":
            raise OptionError(
                f"without pooling each token has a vector: LLM.embed_tokens gives them; poolings are {names}"
            )
        raise OptionError(f"this model gives scores (LLM.rerank), not vectors; for vectors name a pooling: {names}")

    def embed(self, hidden: Floats, kind: str) -> NDArray[np.float64]:
        """f32[n, E] of a text -> f64[size]."""
        return pooling.apply(pooling.pool(hidden, kind), self.pooling.dense, self._weights)

    def score(self, hidden: Floats) -> float:
        """f32[n, E] of a query and a document -> how well they fit: the first score."""
        scores = pooling.apply(pooling.pool(hidden, self.pooling.of_scores), self.pooling.scores, self._weights)
        return float((pooling.softmax(scores) if self.pooling.softmax else scores)[0])

    def require_scores(self) -> None:
        """Raise UnsupportedError if the model cannot rank."""
        if not self.pooling.scores:
            raise UnsupportedError(
                "this model gives no scores (it lacks cls.output.weight): take a reranker, or compare vectors of LLM.embed"
            )


class Job:
    """Embeddings on their way, which another thread may give up: who waits for them then gets an EdgeLLMError."""

    def __init__(self) -> None:
        self._is_given_up = False
        self._shared: SharedEngine | None = None
        self._sequences: list[Sequence] = []

    def begin(self, shared: SharedEngine, sequences: list[Sequence]) -> None:
        """Say what computes them."""
        self._shared, self._sequences = shared, sequences
        if self._is_given_up:
            self.give_up()

    def give_up(self) -> None:
        """Compute no more of them; harmless at any time."""
        self._is_given_up = True
        for sequence in self._sequences:
            if self._shared is not None:
                self._shared.cancel(sequence)


def embed(
    shared: SharedEngine,
    head: Head,
    texts: Iterable[Text],
    wanted: str | None,
    normalize: bool,
    job: Job | None = None,
) -> Floats:
    """Return f32[N, size], a row per text. Raises OptionError, and ContextError for a text that is too long before any is
    computed. job: by which it may be given up."""
    kind, texts = head.kind(wanted), list(texts)
    rows = np.empty((len(texts), head.size), np.float32)
    for row, hidden in zip(rows, _run(shared, texts, "last" if kind == "last" else "all", job), strict=True):
        vector = head.embed(hidden, kind)
        row[:] = pooling.normalise(vector) if normalize else vector
    return rows


def embed_tokens(shared: SharedEngine, texts: Iterable[Text], normalize: bool) -> list[Floats]:
    """Return f32[n, E] per text, the hidden state of each of its tokens. Raises as `embed`."""
    return [_unit_rows(hidden) if normalize else hidden for hidden in _run(shared, list(texts), "all")]


def score(shared: SharedEngine, head: Head, texts: Iterable[Text]) -> Floats:
    """Return f32[N], a score per text, which is a query and a document. Raises as `embed`, and UnsupportedError."""
    head.require_scores()
    kind = "last" if head.pooling.of_scores == "last" else "all"
    return np.array([head.score(hidden) for hidden in _run(shared, list(texts), kind)], np.float32)


def _run(shared: SharedEngine, texts: list[Text], keep: str, job: Job | None = None) -> Iterable[Floats]:
    """Hidden states of each text, in order. All run in one queue, as many at once as there are slots."""
    sequences = [Sequence(text.ids, keep_hidden=keep, token_types=text.types, adapters=text.adapters) for text in texts]
    for sequence in sequences:
        shared.engine.check(sequence)
    try:
        for sequence in sequences:
            shared.add(sequence)
        if job is not None:
            job.begin(shared, sequences)
        for sequence in sequences:
            shared.wait(sequence, 0)
            if sequence.error is not None:
                raise sequence.error
            if sequence.finish_reason == "cancelled":
                raise EdgeLLMError("these embeddings were given up")
            hidden, sequence.hidden = sequence.hidden, None  # of many long texts these are large
            assert hidden is not None
            yield hidden
    finally:
        for sequence in sequences:
            shared.cancel(sequence)


def _unit_rows(rows: Floats) -> Floats:
    return np.array([pooling.normalise(row.astype(np.float64)) for row in rows], np.float32)


def _load(file: GGUFFile, name: str) -> NDArray[np.float64]:
    tensor = file.tensors[name]
    shape = tuple(int(n) for n in tensor.shape)
    form = formats.get(tensor.type_name)
    rows = np.ascontiguousarray(file.data(name)).view(np.uint8).reshape(-1, form.row_bytes(shape[-1]))
    return np.asarray(form.dequantize(rows), np.float64).reshape(shape)
