"""From a row of logits to a token id. Knows no model and no text. Next hop: `sampler.py`."""

from __future__ import annotations

from .logprobs import Logprobs, TokenLogprobs
from .sampler import Sampler

__all__ = ["Logprobs", "Sampler", "TokenLogprobs"]
