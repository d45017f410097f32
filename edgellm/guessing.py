"""What guesses for an engine, by the options: n-grams of the text itself, a small model that is loaded beside the large one.

Next hops: `speculative` guesses and learns, `loader.py` loads.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from . import paths
from .config import EngineConfig
from .errors import ResourceError, UnsupportedError
from .gguf import GGUFFile, open_gguf
from .sequence import Sequence as Request
from .speculative import (
    MAX_DRAFT,
    Corpus,
    CorpusProposer,
    DraftModel,
    DraftProposer,
    NgramProposer,
    Proposer,
    Speculator,
)

Progress = Callable[[str, int, int], None]
LOGITS_BYTES = 4 << 20
"""Most memory for the logits of guessed ids: with a vocabulary of 262,144 a row takes a megabyte."""
TILE_ROWS = 4
"""Rows that kernels write at once."""
VOCABULARY_KEYS = ("tokenizer.ggml.model", "tokenizer.ggml.pre")


def make_speculator(config: EngineConfig, file: GGUFFile, progress: Progress | None) -> Speculator:
    """Make what config asks for; file: the target, whose header has not been forgotten.

    Raises UnsupportedError if the draft model's vocabulary is another, and what loading raises.
    """
    makers: list[Callable[[Request], Proposer]] = []
    closing = ExitStack()
    if config.spec != "draft":
        makers.append(lambda sequence: NgramProposer())
    if config.spec_corpus:
        corpus = Corpus(paths.home() / "corpus" / vocabulary_digest(file), len(file.require("tokenizer.ggml.tokens")))
        makers.append(lambda sequence: CorpusProposer(corpus))
        closing.callback(_save, corpus)
    if config.draft_model is not None:
        draft = _load_draft(config, file, progress, closing)
        makers.append(lambda sequence: DraftProposer(draft, sequence))
    longest = longest_draft(len(file.require("tokenizer.ggml.tokens")))
    if config.max_draft is not None:
        longest = min(longest, config.max_draft)
    return Speculator(lambda sequence: [make(sequence) for make in makers], longest, close=closing.close)


def longest_draft(vocab_size: int) -> int:
    """How many ids may be guessed at once: as many as LOGITS_BYTES have rows for, in whole tiles with that of the last id."""
    rows = LOGITS_BYTES // (4 * vocab_size) // TILE_ROWS * TILE_ROWS
    return min(MAX_DRAFT, max(rows, TILE_ROWS) - 1)


def _load_draft(config: EngineConfig, file: GGUFFile, progress: Progress | None, closing: ExitStack) -> DraftModel:
    from .loader import load_model

    assert config.draft_model is not None
    with open_gguf(config.draft_model) as draft_file:
        check_vocabulary(file, draft_file)
    plain = replace(
        config,
        spec="off",
        draft_model=None,
        spec_corpus=False,
        disk_cache=0,
        cache_memory=None,
        weights="auto",
        lora=(),
        prefix_caching=True,
        max_draft=None,
    )
    loaded = load_model(config.draft_model, plain, progress)
    closing.callback(loaded.close)
    num_tokens = len(file.require("tokenizer.ggml.tokens"))
    if loaded.engine.vocab_size > num_tokens:
        closing.close()
        raise UnsupportedError(_refuse(f"it has {loaded.engine.vocab_size} rows of logits for {num_tokens} tokens"))
    return DraftModel(loaded.engine.runner, loaded.cache, loaded.config.prefill_chunk, loaded.engine.eog_ids)


def _save(corpus: Corpus) -> None:
    try:
        corpus.save()
    except ResourceError as error:  # the answers are there; what could not be kept is only said
        warnings.warn(str(error), RuntimeWarning, stacklevel=2)


def vocabulary_digest(file: GGUFFile) -> str:
    """A name for the file's vocabulary: equal for equal tokens in equal order."""
    import hashlib

    digest = hashlib.blake2b(digest_size=12)
    for token in file.require("tokenizer.ggml.tokens"):
        data = token if isinstance(token, bytes) else str(token).encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(4, "little") + data)
    return digest.hexdigest()


def check_vocabulary(target: GGUFFile, draft: GGUFFile) -> None:
    """Raise UnsupportedError, with the first difference, unless both files have the same ids for the same tokens."""
    for key in VOCABULARY_KEYS:
        if target.get(key) != draft.get(key):
            raise UnsupportedError(_refuse(f"{key} is {draft.get(key)!r} there and {target.get(key)!r} here"))
    ours, theirs = target.require("tokenizer.ggml.tokens"), draft.require("tokenizer.ggml.tokens")
    for token_id, (here, there) in enumerate(zip(ours, theirs, strict=False)):
        if here != there:
            raise UnsupportedError(_refuse(f"token {token_id} is {str(there)!r} there and {str(here)!r} here"))
    if len(ours) != len(theirs):
        raise UnsupportedError(_refuse(f"it has {len(theirs)} tokens, the model has {len(ours)}"))


def _refuse(difference: str) -> str:
    return f"the draft model has another vocabulary: {difference}; take one of the same family"
