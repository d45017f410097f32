"""One request on its way: the ids it has, how its tokens are chosen, what it waits for and why it ended.

Knows ids only, never text, and neither cache nor model. Next hop: `scheduler.py` decides when a sequence runs.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Collection, Iterable
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from .choosing import Choice, Chooser
from .config import SamplingParams
from .sampling import TokenLogprobs


class SequenceState(Enum):
    """Where a sequence is: queued, holding a cache slot, or done."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Sequence:
    """A prompt and what has been generated after it.

    prompt_ids: list of token ids. params: how tokens are chosen.
    keep_logits: collect the logits of every prompt position in `logits`, f32[len(prompt_ids), V], and generate nothing.
    keep_hidden: collect the hidden states of "all" prompt positions, or of the "last", in `hidden`, f32[n, E]; generate nothing.
    token_types: which part of its text each id is of, None: all are of the first.
    adapters: how much of each of the model's adapters it gets; () for the model as it is.
    chooser: chooses its ids; one that follows params alone if None.
    after: a sequence that begins alike: this one waits until that one's prompt is in the cache, and shares it.
    created_s: time.perf_counter() when the request arrived; now if None.
    priority: how urgent it is, the lower the more. client: whose it is: clients of the same priority take turns.

    finish_reason: "stop" (an end-of-generation id), "length" (max_tokens, or the context is full), "cancelled",
        "error" (then `error` says what), None while it runs.
    slot: its row of the cache while it runs. num_cached: its tokens whose K and V are in the cache.
    num_drafted, num_accepted: ids that were guessed for it, and those that were right.
    step_s, plain_step_s: seconds of its decode steps, and what they would have been without guesses, by steps measured.
    num_ready: generated ids that will not be taken back, for others to read. logprobs: one per generated id.
    max_ahead: it pauses while so many ids are ready that nobody has read, None for never. num_read: what its reader has read.
    is_unwanted: somebody wants it to end, in any thread: what still runs of it is for nothing.
    num_reused: the tokens of the prompt that were in the cache when it first ran, from earlier sequences.
    """

    def __init__(
        self,
        prompt_ids: Iterable[int],
        params: SamplingParams | None = None,
        *,
        chooser: Chooser | None = None,
        after: Sequence | None = None,
        keep_logits: bool = False,
        keep_hidden: str | None = None,
        token_types: list[int] | None = None,
        adapters: tuple[float, ...] = (),
        created_s: float | None = None,
        priority: int = 0,
        client: str = "",
    ) -> None:
        self.token_ids: list[int] = list(prompt_ids)
        self.num_prompt = len(self.token_ids)
        self.params = params if params is not None else SamplingParams()
        self.chooser = chooser if chooser is not None else Chooser(self.params)
        self.after = after
        self.keep_logits = keep_logits
        self.keep_hidden = keep_hidden
        self.token_types = token_types
        self.adapters = adapters if any(adapters) else ()
        self.priority = priority
        self.client = client
        self.num_ready = 0
        self.num_drafted = 0
        self.num_accepted = 0
        self.step_s = 0.0
        self.plain_step_s = 0.0
        self.num_read = 0
        self.max_ahead: int | None = None
        self.is_unwanted = False
        self.logprobs: list[TokenLogprobs | None] = []
        self.logits: NDArray[np.float32] | None = None
        self.hidden: NDArray[np.float32] | None = None
        self.state = SequenceState.WAITING
        self.finish_reason: str | None = None
        self.error: BaseException | None = None
        self.slot = -1
        self.num_cached = 0
        self.num_reused = 0
        self.created_s = time.perf_counter() if created_s is None else created_s
        self.started_s: float | None = None
        self.first_token_s: float | None = None
        self.last_token_s: float | None = None

    @property
    def prompt_ids(self) -> list[int]:
        """The ids it started with."""
        return self.token_ids[: self.num_prompt]

    @property
    def output_ids(self) -> list[int]:
        """The ids generated so far, the end-of-generation id included."""
        return self.token_ids[self.num_prompt :]

    @property
    def num_output(self) -> int:
        """How many ids have been generated."""
        return len(self.token_ids) - self.num_prompt

    @property
    def num_pending(self) -> int:
        """Tokens that are known but not yet in the cache: the rest of the prompt, or the one just chosen."""
        return len(self.token_ids) - self.num_cached

    @property
    def domain(self) -> bytes:
        """What its keys and values depend on beside the tokens; b"" for the model as it is."""
        return struct.pack(f"<{len(self.adapters)}f", *self.adapters)

    @property
    def generates(self) -> bool:
        """False if it only wants to know what the model makes of its prompt."""
        return not self.keep_logits and self.keep_hidden is None

    @property
    def wants_all_rows(self) -> bool:
        """True if every token must be computed, whatever the cache holds of it."""
        return self.keep_logits or self.keep_hidden == "all"

    @property
    def is_finished(self) -> bool:
        """True once it neither waits nor runs."""
        return self.state is SequenceState.FINISHED

    @property
    def may_start(self) -> bool:
        """False while it waits for another's prompt to be in the cache."""
        return self.after is None or self.after.is_finished or self.after.num_output > 0

    @property
    def is_ahead(self) -> bool:
        """True while its reader is so far behind that there is no sense in going on."""
        return self.max_ahead is not None and self.num_ready - self.num_read >= self.max_ahead

    def start(self, slot: int, num_cached: int = 0) -> None:
        """Take a cache slot that holds the first `num_cached` tokens already."""
        self.slot = slot
        self.num_cached = num_cached
        self.state = SequenceState.RUNNING
        if self.started_s is None:
            self.started_s = time.perf_counter()
            self.num_reused = num_cached

    def pause(self) -> None:
        """Give the slot up and wait for another: what was generated stays, the cache begins anew."""
        self.slot = -1
        self.num_cached = 0
        self.state = SequenceState.WAITING

    def advance(self, num_tokens: int) -> None:
        """Note that `num_tokens` more are in the cache."""
        self.num_cached += num_tokens

    def collect(self, logits: NDArray[np.float32]) -> None:
        """Copy logits f32[n, V] of the last n cached tokens into `logits`."""
        if self.logits is None:
            self.logits = np.empty((self.num_prompt, logits.shape[1]), np.float32)
        self.logits[self.num_cached - len(logits) : self.num_cached] = logits

    def collect_hidden(self, rows: NDArray[np.float32], num_tokens: int) -> None:
        """Copy hidden states f32[n, E] of the last n of `num_tokens` tokens that are about to be cached into `hidden`."""
        if len(rows):
            if self.hidden is None:
                self.hidden = np.empty((self.num_prompt if self.keep_hidden == "all" else 1, rows.shape[1]), np.float32)
            end = self.num_cached + num_tokens if self.keep_hidden == "all" else 1
            self.hidden[end - len(rows) : end] = rows

    def take(self, choice: Choice, eog_ids: Collection[int], max_context: int | None) -> str | None:
        """Append a generated id and return the reason to finish, if there is one. max_context: None for no end."""
        token_id = choice.token_id
        self.token_ids.append(token_id)
        self.logprobs.append(choice.logprobs)
        self.last_token_s = time.perf_counter()
        if self.first_token_s is None:
            self.first_token_s = self.last_token_s
        if token_id in eog_ids and not self.params.ignore_eos:
            return "stop"
        limit = self.params.max_tokens
        is_full = max_context is not None and len(self.token_ids) >= max_context
        return "length" if is_full or (limit is not None and self.num_output >= limit) else None

    def take_back(self, num_tokens: int) -> None:
        """Undo the last generated ids; what is left keeps one token pending, whose logits choose anew."""
        self.chooser.take_back(self.token_ids, num_tokens)
        del self.token_ids[-num_tokens:]
        del self.logprobs[-num_tokens:]
        self.num_cached = min(self.num_cached, len(self.token_ids) - 1)

    def publish(self) -> None:
        """Let others see the generated ids, but for those that may still be taken back."""
        self.num_ready = max(self.num_ready, self.num_output - self.chooser.num_held)

    def finish(self, reason: str, error: BaseException | None = None) -> None:
        """Leave the queue or the cache for good; the first reason stays."""
        if not self.is_finished:
            self.finish_reason = reason
            self.error = error
            self.slot = -1
            self.num_ready = self.num_output
            self.state = SequenceState.FINISHED  # last: another thread may look at the reason as soon as this is set
