"""An LLM with a real tokenizer and a real template, whose answers a test writes down as text: everything but the numbers."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scripted_llm import NoAdapters
from tiny_vocabulary import CONTROL, USER_DEFINED, make_bpe

from edgellm.cache.kv import KVCache
from edgellm.chat_template import ChatTemplate
from edgellm.config import EngineConfig
from edgellm.engine import Engine
from edgellm.kernels.ops import Batch, CacheLayer
from edgellm.llm import LLM
from edgellm.tokenizer import Tokenizer

VOCAB_SIZE = 512
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class ScriptedAnswers:
    """A backend that says what `say` was given, wherever the prompt ends; noise where nothing was.

    temperature 0 follows it. Where a constraint forbids what is written, the noise decides.
    """

    vocab_size = VOCAB_SIZE

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.num_steps = 0
        self._start: int | None = None

    def say(self, ids: Iterable[int]) -> None:
        """Answer the next prompt so."""
        self.ids, self._start = list(ids), None

    def run(self, batch: Batch) -> NDArray[np.float32]:
        self.num_steps += 1
        rows = np.zeros((len(batch.logit_rows), VOCAB_SIZE), np.float32)
        for row, place in zip(rows, batch.logit_rows, strict=True):
            position = int(batch.positions[place])
            self._start = position if self._start is None else self._start
            row[:] = np.random.default_rng(position).normal(0, 1, VOCAB_SIZE)
            if 0 <= position - self._start < len(self.ids):
                row[self.ids[position - self._start]] = 50
        return rows

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass


def make_chat_llm(
    source: str = CHATML, control: Iterable[str] = (), user_defined: Iterable[str] = ()
) -> tuple[LLM, ScriptedAnswers]:
    """An LLM whose template is `source` and whose vocabulary has these tokens more."""
    metadata: dict[str, Any] = make_bpe(VOCAB_SIZE)
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    place = VOCAB_SIZE
    for kind, texts in ((CONTROL, control), (USER_DEFINED, user_defined)):
        for text in texts:
            place -= 1
            tokens[place], types[place] = text, kind
    tokenizer = Tokenizer(metadata)
    backend = ScriptedAnswers()
    cache = KVCache([CacheLayer(1, 32, None)], 2048, 2, 64)
    engine = Engine(backend, cache, EngineConfig(prefill_chunk=64, max_sequences=2), sorted(tokenizer.eog_ids))
    template = ChatTemplate(source, tokenizer)
    loaded: Any = SimpleNamespace(
        engine=engine,
        tokenizer=tokenizer,
        template=template,
        load_s=0.0,
        close=engine.close,
        config=engine.config,
        adapters=NoAdapters(),
    )
    return LLM(loaded), backend


def say(llm: LLM, backend: ScriptedAnswers, text: str) -> None:
    """Have the next prompt answered with a text, control tokens by their names, and then the end."""
    ids = [*llm.tokenizer.encode(text, special=True, add_bos=False), min(llm.eog_ids)]
    llm._shared.call(lambda: backend.say(ids))  # after what is still under way of an answer that was cut
