"""An LLM on a scripted model, with a vocabulary of fifty pieces and a template that joins messages."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scripted_model import ScriptedBackend, make_engine

from edgellm.config import SamplingParams
from edgellm.engine import Engine
from edgellm.llm import LLM

BOS, EOG, EOT = 47, 48, 49
PIECES = [b"a", b"b", b"c", b" ", b"\n", b"The", b" quick", b" br", b"own", b" fox", b" jumps", b"d"]
PIECES += ["\U0001f638".encode()[:2], "\U0001f638".encode()[2:], b"A", "歪".encode()[:2], b"\xff", b"B"]
PIECES += [b"%d." % i for i in range(len(PIECES), BOS)] + [b"", b"", b"<end>"]  # EOT has a text: it is never shown


class FakeTokenizer:
    """One id per listed piece; a text is cut greedily."""

    vocab_size = len(PIECES)
    eog_ids = frozenset({EOG, EOT})
    find_token = staticmethod(dict[str, int]().get)

    def __init__(self, bos_id: int | None = BOS, add_bos: bool = True) -> None:
        self.bos_id, self.add_bos = bos_id, add_bos

    def encode(self, text: str, special: bool = False, add_bos: bool | None = None) -> list[int]:
        wants_bos = special if add_bos is None else add_bos
        ids, data = [BOS] if wants_bos else [], text.encode()
        while data:
            ids.append(max((i for i, p in enumerate(PIECES[:BOS]) if data.startswith(p)), key=lambda i: len(PIECES[i])))
            data = data[len(PIECES[ids[-1]]) :]
        return ids

    def token_bytes(self, token: int) -> bytes:
        return PIECES[token]

    def decode(self, ids: Iterable[int], special: bool = False) -> str:
        return b"".join(PIECES[i] for i in ids).decode("utf-8", "replace") + ("!" if special else "")


class FakeTemplate:
    sources: Mapping[str, str] = {"default": "{{ messages }}"}

    def render_ids(self, messages: list[Mapping[str, Any]], **given: Any) -> list[int]:
        return [BOS, *FakeTokenizer().encode(" ".join(message["content"] for message in messages))]


class NoAdapters:
    """A model as it is."""

    scales: Mapping[str, float] = {}

    def choose(self, wanted: Mapping[str, float] | None) -> tuple[float, ...]:
        return ()


@dataclass
class FakeLoaded:
    engine: Engine
    tokenizer: FakeTokenizer
    template: FakeTemplate | None
    load_s: float = 1.5
    num_closed: int = 0
    adapters: NoAdapters = field(default_factory=NoAdapters)

    def close(self) -> None:
        self.num_closed += 1
        self.engine.close()


def make_llm(
    max_context: int = 256, tokenizer: FakeTokenizer | None = None, template: bool = True, prefill_chunk: int = 16
) -> tuple[LLM, ScriptedBackend]:
    engine, backend = make_engine([None, 70], max_context, sorted(FakeTokenizer.eog_ids), prefill_chunk)
    loaded = FakeLoaded(engine, tokenizer or FakeTokenizer(), FakeTemplate() if template else None)
    return LLM(loaded), backend  # type: ignore[arg-type]


def follow(backend: ScriptedBackend, *ids: int) -> None:
    """Make the model answer a prompt that ends in ids[0] with the rest."""
    backend.script = dict(itertools.pairwise(ids))


def free_slots(llm: LLM) -> int:
    """Of the cache, once the engine's thread has done what was asked of it so far."""
    return llm._shared.call(lambda: llm.loaded.engine._cache.num_free_slots)


FREE = SamplingParams(seed=3, ignore_eos=True)
