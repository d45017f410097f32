"""What EngineConfig refuses of the cache's options and what it says then, and that LLM.load takes them all."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import edgellm
from edgellm import LLM
from edgellm.config import CACHE_TYPES, EngineConfig
from edgellm.errors import OptionError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, "window must be at least 1, not 0"),
        ({"window": 2.5}, "window must be a whole number"),
        ({"window": 8, "sinks": 65}, "sinks must be from 0 to 64, not 65"),
        ({"window": 8, "sinks": -1}, "sinks must be from 0 to 64, not -1"),
        (
            {"window": 8, "max_context": 9},
            "window 8 leaves the context without an end, so max_context 9 has no meaning",
        ),
        ({"sinks": 8}, "sinks 8 has no meaning where nothing is dropped; add --window N or --on-full window"),
        ({"on_full": "shift"}, "on_full must be one of stop, window, not 'shift'"),
        ({"cache_type_k": "q9"}, f"cache_type_k must be one of {', '.join(CACHE_TYPES)}, not 'q9'$"),
        ({"cache_type_v": "q4_0"}, "not 'q4_0': 4 bits are called q4_h here"),
        ({"cache_type_v": "iq4_nl"}, "not 'iq4_nl': 4 bits are called q4_h here"),
        ({"cache_type_k": "q5_1"}, "not 'q5_1': q8_0 is the next larger"),
        ({"cache_type_k": "f32"}, "not 'f32': f16 keeps"),
        ({"cache_type_k": ["f16"]}, "cache_type_k must be one of"),
        ({"cache_memory": 0}, "cache_memory must be at least 1"),
        ({"cache_memory": "2GB"}, "cache_memory must be a whole number"),
        ({"disk_cache": -1}, "disk_cache must be at least 0"),
        ({"prefix_caching": 1}, "prefix_caching must be true or false, not 1"),
        ({"prefix_caching": False, "disk_cache": 5}, "disk_cache keeps what prefix_caching leaves"),
        ({"max_draft": 0}, "max_draft must be from 1 to 24, not 0"),
        ({"max_draft": 25}, "max_draft must be from 1 to 24, not 25"),
    ],
)
def test_what_is_refused_and_why(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        EngineConfig(**options)


def test_what_is_taken() -> None:
    for name in CACHE_TYPES:
        assert EngineConfig(cache_type_k=name, cache_type_v=name).cache_type_k == name
    assert EngineConfig(window=1, sinks=0).window == 1
    assert EngineConfig(on_full="window", sinks=64, max_context=1).sinks == 64
    assert EngineConfig(window=8, on_full="window").on_full == "window"


def test_load_takes_every_field_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class LoadedEnough(Exception):
        pass

    configs = []

    def load_model(path: Path, config: EngineConfig, progress: object) -> None:
        configs.append(config)
        raise LoadedEnough

    options = inspect.signature(LLM.load).parameters
    known = {name: option.default for name, option in options.items() if name not in ("model", "progress")}
    assert known == {field.name: field.default for field in fields(EngineConfig)}
    monkeypatch.setattr(edgellm, "hub", SimpleNamespace(resolve=lambda name, progress: Path(name)), raising=False)
    monkeypatch.setattr(edgellm, "loader", SimpleNamespace(load_model=load_model), raising=False)
    given: dict[str, Any] = {"threads": 2, "prefill_chunk": 5, "max_sequences": 3, "weights": "raw", "precise": True}
    given |= {"cache_type_k": "q8_0", "cache_type_v": "bf16", "cache_memory": 10**9, "disk_cache": 5}
    for more in ({"window": 70, "sinks": 3}, {"on_full": "window", "max_context": 8, "sinks": 1}):
        with pytest.raises(LoadedEnough):
            LLM.load("m.gguf", **given, **more)
        assert configs.pop() == EngineConfig(**given, **more)
