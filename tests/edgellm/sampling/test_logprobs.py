"""Logprobs: a float64 log-softmax of the logits as the model gave them, whatever chooses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from edgellm.choosing import Chooser
from edgellm.config import SamplingParams
from edgellm.errors import ModelFileError
from edgellm.kernels.vocabulary import Vocabulary


def log_softmax(logits: np.ndarray) -> np.ndarray:
    x = logits.astype(np.float64)
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


@pytest.mark.parametrize(
    "given", [{}, {"temperature": 0.0}, {"logit_bias": {7: 50.0}}, {"repeat_penalty": 1.5}, {"xtc_probability": 1.0}]
)
def test_they_are_of_the_unmodified_logits(
    make_vocabulary: Callable[[int], Vocabulary], given: dict[str, float]
) -> None:
    logits = np.random.default_rng(0).normal(0, 3, 3000).astype(np.float32)
    chooser = Chooser(SamplingParams(seed=1, logprobs=4, **given))  # type: ignore[arg-type]
    chooser.use(make_vocabulary(3000))
    choice = chooser.choose(logits.copy(), [1, 7], 1, forbidden=[int(np.argmax(logits))])
    want = log_softmax(logits)
    assert choice.logprobs is not None and choice.logprobs.token_id == choice.token_id != int(np.argmax(logits))
    assert choice.logprobs.logprob == pytest.approx(want[choice.token_id], abs=1e-6)
    assert [i for i, _ in choice.logprobs.top] == np.argsort(-want)[:4].tolist()
    assert [x for _, x in choice.logprobs.top] == pytest.approx(np.sort(want)[::-1][:4], abs=1e-6)


def test_none_and_zero() -> None:
    logits = np.arange(5, dtype=np.float32)
    assert Chooser(SamplingParams(seed=1)).choose(logits.copy(), [1], 1).logprobs is None
    found = Chooser(SamplingParams(seed=1, logprobs=0)).choose(logits.copy(), [1], 1).logprobs
    assert found is not None and found.top == ()


def test_no_numbers_are_an_error() -> None:
    with pytest.raises(ModelFileError, match="nan"):
        Chooser(SamplingParams(logprobs=3)).choose(np.array([0, np.nan, 1], np.float32), [1], 1)
