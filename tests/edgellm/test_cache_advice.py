"""What a user is told of a cache format that costs this model much."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from edgellm import cache_advice
from edgellm.cache_advice import TABLE, Advice, advise
from edgellm.config import CACHE_TYPES, EngineConfig


def test_advice_is_for_one_format_in_one_role_below_a_size() -> None:
    table = [Advice("q4_h", "k", 1000, "costs 0.1 nats"), Advice("e5m2", "v", 50, "costs 0.2 nats")]
    assert advise(("q4_h", "e5m2"), 49, table) == [
        "--cache-type-k q4_h: costs 0.1 nats",
        "--cache-type-v e5m2: costs 0.2 nats",
    ]
    assert advise(("q4_h", "e5m2"), 50, table) == ["--cache-type-k q4_h: costs 0.1 nats"]
    assert (
        advise(("q4_h", "q4_h"), 1000, table)
        == advise(("f16", "q4_h"), 1, table)
        == advise(("e5m2", "f16"), 1, table)
        == []
    )


def test_the_table_names_formats_and_roles_that_exist() -> None:
    assert {advice.format for advice in TABLE} <= set(CACHE_TYPES) and {advice.role for advice in TABLE} <= {"k", "v"}
    assert all(advice.below_parameters > 0 and "\n" not in advice.text for advice in TABLE)
    assert advise(("f16", "f16"), 1) == advise(("q8_0", "q8_0"), 1) == advise(("q4_h", "q4_h"), 10**9) == []
    assert len(advise(("q4_h", "q4_h"), 10**9 - 1)) == 2


def test_a_warning_per_reason() -> None:
    tensors: dict[str, Any] = {"a": SimpleNamespace(shape=(5, 10)), "b": SimpleNamespace(shape=(7,))}
    file = SimpleNamespace(tensors=tensors)
    assert cache_advice.count_parameters(file) == 57
    with pytest.warns(RuntimeWarning, match="--cache-type-v q4_h: "):
        cache_advice.warn(EngineConfig(cache_type_v="q4_h"), file)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache_advice.warn(EngineConfig(), file)
