"""SamplingParams: every value that cannot be is refused by its field's name. Cases O19."""

from __future__ import annotations

import math
from typing import Any

import pytest

from edgellm.config import SamplingParams
from edgellm.config_sampling import SAMPLERS
from edgellm.errors import OptionError

NUMBERS = {
    "temperature": [-1], "top_p": [-0.1, 1.5], "min_p": [-1, 2], "typical_p": [-1, 2], "top_n_sigma": [1e9],
    "dynatemp_range": [-1], "dynatemp_exponent": [-1], "xtc_probability": [-1, 2], "xtc_threshold": [-1, 2],
    "repeat_penalty": [0, -1], "presence_penalty": [1e9], "frequency_penalty": [-1e9], "dry_multiplier": [-1],
    "dry_base": [0.5], "mirostat_tau": [-1], "mirostat_eta": [-1, 2],
}  # fmt: skip
WHOLE = ("top_k", "repeat_last_n", "dry_last_n", "dry_allowed_length")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name, values in NUMBERS.items() for value in [*values, None, "1", True, math.nan, math.inf]),
        *((name, value) for name in WHOLE for value in (None, 1.5, "3", True)),
        ("dry_allowed_length", 0), ("mirostat", 1), ("mirostat", True), ("mirostat", None), ("logprobs", -1),
        ("logprobs", 21), ("logprobs", True), ("seed", -1), ("seed", 2**64), ("seed", 1.0), ("ignore_eos", 1),
        ("samplers", "top_k"), ("samplers", ["top_k", "top_k"]), ("samplers", ["tail_free"]), ("samplers", 5),
        ("logit_bias", [1]), ("logit_bias", {"a": 1.0}), ("logit_bias", {-1: 1.0}), ("logit_bias", {True: 1.0}),
        ("logit_bias", {1: math.nan}), ("logit_bias", {1: -math.inf}), ("logit_bias", {1: None}),
        ("banned", ["a", ""]), ("banned", 5), ("banned", ["a\ufffd"]), ("stop", ["\ud800"]), ("dry_breakers", [b"a"]),
    ],
)  # fmt: skip
def test_o19_what_cannot_be_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"^{name} ") as caught:
        SamplingParams(**{name: value})
    assert "\n" not in str(caught.value)


def test_o19_what_can_be_is_taken() -> None:
    for top_k in (0, -1, 1, 10**9):
        assert SamplingParams(top_k=top_k).top_k == top_k
    for temperature in (0, 1e-9, 1e9):
        assert SamplingParams(temperature=temperature).temperature == temperature
    assert SamplingParams(samplers=list(SAMPLERS[::-1])).samplers == SAMPLERS[::-1]  # type: ignore[arg-type]
    assert SamplingParams(banned="no").banned == ("no",)  # type: ignore[arg-type]
    assert hash(SamplingParams(logit_bias={1: 2.0})) == hash(SamplingParams(logit_bias={1: 2.0}))


def test_a_bias_is_a_copy() -> None:
    given = {1: 2.0}
    params = SamplingParams(logit_bias=given)
    given[1] = math.nan
    assert params.logit_bias == {1: 2.0}
