"""What guesses for an engine, by the options: n-grams of the text itself, a small model that is loaded beside the large one.

Next hops: `speculative` guesses and learns, `loader.py` loads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from .config import EngineConfig
from .errors import UnsupportedError
from .gguf import GGUFFile, open_gguf
from .sequence import Sequence as Request
from .speculative import DraftModel, DraftProposer, NgramProposer, Proposer, Speculator

Progress = Callable[[str, int, int], None]
VOCABULARY_KEYS = ("tokenizer.ggml.model", "tokenizer.ggml.pre")


def make_speculator(config: EngineConfig, file: GGUFFile, progress: Progress | None) -> Speculator:
    """Make what config asks for; file: the target, whose header has not been forgotten.

    Raises UnsupportedError if the draft model's vocabulary is another, and what loading raises.
    """
    if config.draft_model is None:
        return Speculator(lambda sequence: [NgramProposer()])
    from .loader import load_model

    with open_gguf(config.draft_model) as draft_file:
        check_vocabulary(file, draft_file)
    quiet = replace(
        config,
        spec="off",
        draft_model=None,
        disk_cache=0,
        cache_memory=None,
        weights="auto",
        max_context=config.max_context,
    )
    loaded = load_model(config.draft_model, quiet, progress)
    draft = DraftModel(loaded.engine.runner, loaded.cache, loaded.config.prefill_chunk, loaded.engine.eog_ids)

    def make_proposers(sequence: Request) -> Sequence[Proposer]:
        guesses: list[Proposer] = [DraftProposer(draft, sequence)]
        return guesses if config.spec == "draft" else [NgramProposer(), *guesses]

    return Speculator(make_proposers, close=loaded.close)


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
