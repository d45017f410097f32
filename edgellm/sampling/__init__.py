"""From a row of logits to a token id. Knows no model and no text. Next hop: `sampler.py`."""

from __future__ import annotations

from .sampler import Sampler, TokenLogprobs

__all__ = ["Sampler", "TokenLogprobs"]
