"""How the ids of one sequence are chosen: the sampler, what a constraint forbids and forces, what must not be said.

Knows ids only. A constraint and a watcher come from those who know text. Next hops: `sampling`, `structured`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from collections.abc import Sequence as ListOf
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .config import SamplingParams
from .errors import ModelFileError, OptionError
from .kernels.vocabulary import Vocabulary
from .sampling import Logprobs, Sampler, TokenLogprobs

MAX_TRIES = 1000
"""Ways of going on that may be taken back before one stays."""
_NOTHING_LEFT = "nothing can follow here: form, banned, logit_bias and ignore_eos leave no token; loosen one of them"


class Choice(NamedTuple):
    """A chosen id, and what the model thought of it if that was asked for."""

    token_id: int
    logprobs: TokenLogprobs | None = None


class Constraint(Protocol):
    """What may follow, by a grammar. It has seen every generated id through `accept`."""

    def mask(self, logits: NDArray[np.float32]) -> None:
        """Set to -inf in logits f32[V] what may not come next; end-of-generation ids stay where the text may end."""

    def accept(self, token_id: int) -> None:
        """Go on by an id that `mask` left or `forced` named; an end-of-generation id changes nothing."""

    def forced(self) -> list[int]:
        """Ids that must come next, one after another, whatever the logits; they are not accepted yet."""

    def take_back(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` calls of `accept`."""

    @property
    def is_complete(self) -> bool:
        """True once nothing but the end may follow."""


class Watcher(Protocol):
    """Reads along and says when generated ids must be taken back, as for texts that must not be said."""

    def accept(self, token_id: int) -> int:
        """Take a generated id. -> how many of the last ids, this one included, must go; 0 to go on."""

    def take_back(self, num_tokens: int) -> None:
        """Forget the last `num_tokens` ids."""

    @property
    def num_held(self) -> int:
        """How many of the last ids may still have to be taken back: nobody may see them yet."""


class Chooser:
    """Chooses the ids of one sequence.

    params: how. constraint: what may come, None for anything. watcher: what must be taken back, None for nothing.
    token_bytes: the bytes of an id, for samplers that look at text.
    """

    def __init__(
        self,
        params: SamplingParams,
        constraint: Constraint | None = None,
        watcher: Watcher | None = None,
        token_bytes: Callable[[int], bytes] | None = None,
    ) -> None:
        self._params = params
        self._sampler = Sampler(params, token_bytes)
        self._constraint = constraint
        self._watcher = watcher
        self._banned: dict[int, list[int]] = {}  # position -> ids that may not come there
        # Generated; never taken back; taken back since that grew.
        self._num_ids, self._num_ready, self._num_tries = 0, 0, 0

    @property
    def is_complete(self) -> bool:
        """True once a constraint lets nothing follow."""
        return self._constraint is not None and self._constraint.is_complete

    @property
    def num_held(self) -> int:
        """How many of the last ids nobody may see yet."""
        return 0 if self._watcher is None else self._watcher.num_held

    def use(self, vocabulary: Vocabulary) -> None:
        """Scan rows of logits by this from now on."""
        self._sampler.vocabulary = vocabulary

    def make_twin(self) -> Sampler:
        """A sampler of the same settings and random numbers: a draft model that agrees with the target draws the same ids."""
        return self._sampler.make_twin()

    def choose(
        self, logits: NDArray[np.float32], token_ids: ListOf[int], num_prompt: int, forbidden: Collection[int] = ()
    ) -> Choice:
        """Choose what follows token_ids, of which the first num_prompt are the prompt. logits f32[V] may be overwritten.

        forbidden: ids that may not come. Raises ModelFileError if the logits are no numbers or forbid everything, OptionError if
        a constraint and bans do.
        """
        banned = [*forbidden, *self._banned.get(len(token_ids), ())]
        is_masked = self._constraint is not None or bool(banned) or bool(self._params.logit_bias)
        logprobs, raw = None, logits
        if self._params.logprobs is not None:
            raw = logits.copy() if self._sampler.changes_logits else logits  # masks leave the chosen one's as it is
            logprobs = Logprobs(raw, self._sampler.vocabulary, self._params.logprobs)
        if self._constraint is not None:
            self._constraint.mask(logits)
        if banned:
            logits[banned] = -np.inf
        try:
            is_read = logprobs is not None and logprobs.is_usable and not is_masked and raw is logits
            token_id = self._sampler.choose(logits, token_ids, num_prompt, is_read)
        except ModelFileError:
            if is_masked and self._sampler.vocabulary.top == -np.inf:
                raise OptionError(_NOTHING_LEFT) from None
            raise
        return Choice(token_id, None if logprobs is None else logprobs.of(token_id))

    def forced(self) -> list[int]:
        """Ids that must follow and need no forward pass each; none where logprobs of each are wanted."""
        if self._constraint is None or self._params.logprobs is not None:
            return []
        return self._constraint.forced()

    def accept(self, token_id: int) -> int:
        """Note an id as generated. -> how many of the last ids must be taken back."""
        self._sampler.accept(token_id)
        if self._constraint is not None:
            self._constraint.accept(token_id)
        if self._watcher is None:
            return 0
        self._num_ids += 1
        num_back = self._watcher.accept(token_id)
        if not num_back and self._num_ids - self._watcher.num_held > self._num_ready:
            self._num_ready, self._num_tries = self._num_ids - self._watcher.num_held, 0
        return num_back

    def take_back(self, token_ids: ListOf[int], num_tokens: int) -> None:
        """Undo the last `num_tokens` of token_ids, and never choose the first of them there again.

        Raises OptionError if that has happened MAX_TRIES times without anything that stays.
        """
        self._num_tries += 1
        if self._num_tries > MAX_TRIES:
            raise OptionError(
                f"banned texts leave no way on: {MAX_TRIES} were tried at one place; ban fewer or longer texts"
            )
        position = len(token_ids) - num_tokens
        self._banned.setdefault(position, []).append(token_ids[position])
        for later in [p for p in self._banned if p > position]:
            del self._banned[later]  # what followed is another text now
        self._num_ids -= num_tokens
        self._sampler.take_back(position, num_tokens)
        if self._constraint is not None:
            self._constraint.take_back(num_tokens)
        if self._watcher is not None:
            self._watcher.take_back(num_tokens)
