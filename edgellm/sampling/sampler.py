"""The sampler of one sequence: bias, penalties and filters in order, then a draw. What it remembers can be taken back.

Knows no model and no text. Next hops: `filters.py`, `penalties.py`, `dry.py`, `mirostat.py`, `randomness.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Sequence as ListOf
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..config import SamplingParams
from ..kernels.vocabulary import Ids, Vocabulary
from . import filters
from .candidates import Candidates, Floats, require_number
from .dry import Dry
from .mirostat import Mirostat
from .penalties import Penalties
from .randomness import Randomness

FORBIDS = -100.0
"""A bias of this or less is -inf."""


class Sampler:
    """Chooses ids for one sequence.

    token_bytes: the bytes of an id, which DRY needs to see what ends a repetition. vocabulary: scans rows of logits; an engine
    sets its own, compiled.
    """

    def __init__(self, params: SamplingParams, token_bytes: Callable[[int], bytes] | None = None) -> None:
        self.vocabulary = Vocabulary()
        self._params, self._token_bytes = params, token_bytes
        self._randomness = Randomness(int.from_bytes(os.urandom(8), "little") if params.seed is None else params.seed)
        self._bias_ids = np.array(list(params.logit_bias), np.intp)
        biases = np.array(list(params.logit_bias.values()), np.float64)
        self._biases = np.where(biases <= FORBIDS, -np.inf, biases)
        is_mirostat = params.mirostat == 2
        self._mirostat = Mirostat(params.mirostat_tau, params.mirostat_eta) if is_mirostat else None
        self._penalties = Penalties(params) if Penalties.is_on(params) else None
        self._dry = Dry(params, token_bytes) if Dry.is_on(params) else None
        off = {name for name, it in (("penalties", self._penalties), ("dry", self._dry)) if it is None}
        self._samplers = [name for name in params.samplers if name not in off]
        self._is_greedy = params.is_greedy and "temperature" in params.samplers
        self._is_plain = self._is_greedy and not is_mirostat and {"penalties", "dry"}.isdisjoint(self._samplers)
        self._is_plain &= not len(self._bias_ids)
        if is_mirostat:
            self._samplers = [n for n in self._samplers if n in ("penalties", "dry")] + ["temperature"]

    @property
    def changes_logits(self) -> bool:
        """True if `choose` may change the logit of the id that it chooses."""
        return bool(len(self._bias_ids)) or not {"penalties", "dry"}.isdisjoint(self._samplers)

    def choose(
        self, logits: NDArray[np.float32], token_ids: ListOf[int], num_prompt: int, is_read: bool = False
    ) -> int:
        """Choose what follows token_ids from logits f32[V], which may be overwritten; -inf forbids an id.

        is_read: `vocabulary` has read these very logits, and they are numbers; only where `changes_logits` is false.
        Raises ModelFileError if a logit is NaN or +inf, or all are -inf.
        """
        position = len(token_ids) - num_prompt
        if self._is_plain:  # the likeliest id of these very logits: all that greedy decoding asks
            if not is_read:
                self.vocabulary.read(logits)
            require_number(self.vocabulary.top)
            return self.vocabulary.best_id
        candidates = self._filter(logits, token_ids, position, is_read)
        token_id = candidates.draw(self._randomness.uniforms(position)[0]) if candidates.is_open else candidates.only
        if self._mirostat is not None:
            self._mirostat.observe(candidates.probability(token_id))
        return token_id

    def make_twin(self) -> Sampler:
        """Return a sampler that draws by the same random numbers and remembers nothing yet."""
        twin = Sampler(replace(self._params, seed=self._randomness.seed), self._token_bytes)
        twin.vocabulary = self.vocabulary
        return twin

    def distribution(self, logits: NDArray[np.float32], token_ids: ListOf[int], num_prompt: int) -> tuple[Ids, Floats]:
        """Return what `choose` would draw from: ids, likeliest first, and their probabilities, which add up to 1.

        Remembers nothing but token_ids; raises as `choose` does.
        """
        candidates = self._filter(logits, token_ids, len(token_ids) - num_prompt)
        return candidates.ids, candidates.probabilities()

    def accept(self, token_id: int) -> None:
        """Note a generated id, chosen here or forced."""
        if self._mirostat is not None:
            self._mirostat.accept()

    def take_back(self, num_kept: int, num_tokens: int) -> None:
        """Undo the last `num_tokens` calls of `accept`; `num_kept` ids of prompt and answer are left."""
        for remembers in (self._penalties, self._dry):
            if remembers is not None:
                remembers.take_back(num_kept)
        if self._mirostat is not None:
            self._mirostat.take_back(num_tokens)

    def _filter(
        self, logits: NDArray[np.float32], token_ids: ListOf[int], position: int, is_read: bool = False
    ) -> Candidates:
        """Run the chain. -> what is left."""
        if len(self._bias_ids):
            logits[self._bias_ids] = (logits[self._bias_ids] + self._biases).astype(np.float32)
        names = list(self._samplers)
        while names and names[0] in ("penalties", "dry"):  # first of all: nothing has looked at the logits yet
            self._apply(names.pop(0), logits, token_ids)
        candidates = Candidates(logits, self.vocabulary, is_read)
        if self._is_greedy and {"penalties", "dry"}.isdisjoint(names):
            names = ["temperature"]  # filters leave the best id, but what comes later may make another one the best
        for name in names:
            if name in ("penalties", "dry"):
                self._apply(name, logits, token_ids, candidates.temperature)
                candidates.refresh()
            else:
                self._run(name, candidates, position)
        if self._mirostat is not None:
            self._mirostat.filter(candidates)
        return candidates

    def _apply(self, name: str, logits: NDArray[np.float32], token_ids: ListOf[int], scale: float = 1.0) -> None:
        changer = self._penalties if name == "penalties" else self._dry
        assert changer is not None
        changer.apply(logits, token_ids, scale)

    def _run(self, name: str, candidates: Candidates, position: int) -> None:
        """Run one filter."""
        params = self._params
        if name == "top_k":
            filters.top_k(candidates, params.top_k)
        elif name == "top_p":
            filters.top_p(candidates, params.top_p)
        elif name == "min_p":
            filters.min_p(candidates, params.min_p)
        elif name == "typical_p":
            filters.typical_p(candidates, params.typical_p)
        elif name == "top_n_sigma":
            filters.top_n_sigma(candidates, params.top_n_sigma)
        elif name == "xtc":
            if params.xtc_probability > 0.0:
                chance = self._randomness.uniforms(position)[1]
                filters.xtc(candidates, params.xtc_probability, params.xtc_threshold, chance)
        elif params.dynatemp_range > 0.0:
            filters.dynamic_temperature(candidates, params.temperature, params.dynatemp_range, params.dynatemp_exponent)
        else:
            filters.temperature(candidates, params.temperature)
