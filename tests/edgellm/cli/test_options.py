"""The cache's options on the command line: sizes, spellings, and the way into EngineConfig."""

from __future__ import annotations

from argparse import ArgumentTypeError
from dataclasses import fields
from typing import Any

import pytest

from edgellm.cli import main, options
from edgellm.cli.parser import command_parser
from edgellm.config import EngineConfig


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("9007199254740993", 9007199254740993),  # no float holds it
        ("500MB", 500 * 10**6),
        ("2GB", 2 * 10**9),
        ("2g", 2 * 10**9),
        ("1.5GiB", 3 * 2**29),
        ("1.5 gib", 3 * 2**29),
        ("64KiB", 1 << 16),
        ("7B", 7),
        ("1TB", 10**12),
    ],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert options.size(text) == nbytes


@pytest.mark.parametrize("text", ["", "GB", "-1", "1e9", "2 G B", "1,5GB", "nan", "2XB", "2iB", "0x10", "²"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is not a size; write it as 500MB, 2GB, 1.5GiB or a number of bytes"):
        options.size(text)


def config_of(*words: str, with_context: bool = True) -> EngineConfig:
    parser = command_parser("x", "", "", "")
    options.add_engine(parser, with_context=with_context)
    return options.engine_config(parser.parse_words(list(words)))


def test_every_field_of_the_config_has_an_option() -> None:
    given = {
        "threads": ("3", 3), "max_context": ("99", 99), "prefill_chunk": ("7", 7), "weights": ("raw", "raw"),
        "precise": (None, True), "cache_type_k": ("Q8_0", "q8_0"), "cache_type_v": ("e4m3", "e4m3"),
        "cache_memory": ("2GB", 2 * 10**9), "disk_cache": ("1KiB", 1024), "sinks": ("9", 9), "on_full": ("window", "window"),
        "spec": ("auto", "auto"), "spec_corpus": (None, True), "draft_model": ("m.gguf", "m.gguf"),
        "lora": ("a.gguf:0.5", (("a.gguf", 0.5),)), "max_draft": ("5", 5),
    }  # fmt: skip
    words = []
    for name, (word, _) in given.items():
        words += [f"--{name.replace('_', '-')}", *([] if word is None else [word])]
    assert config_of(*words) == EngineConfig(**{name: value for name, (_, value) in given.items()})  # type: ignore[arg-type]
    assert config_of("--window", "8", "--sinks", "0") == EngineConfig(window=8, sinks=0)
    assert config_of("--no-prefix-caching") == EngineConfig(prefix_caching=False)
    assert {f.name for f in fields(EngineConfig)} - set(given) == {"max_sequences", "window", "prefix_caching"}


def test_the_defaults_are_those_of_the_config() -> None:
    assert config_of() == config_of(with_context=False) == EngineConfig()


def test_all_of_it_reaches_the_model(fake_llm: Any) -> None:
    assert main(["run", "hi", "--cache-type-v", "bf16", "--precise", "--on-full", "window"]) == 0
    assert main(["bench", "-p", "8", "-n", "8", "-r", "1", "-t", "1", "--window", "70", "--cache-type-k", "q8_0"]) == 0
    run, bench = (config for _, config in fake_llm.loads)
    assert run == EngineConfig(cache_type_v="bf16", precise=True, on_full="window")
    assert bench == EngineConfig(threads=1, window=70, cache_type_k="q8_0", spec="off")


def test_load_llm_hands_every_field_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgellm import LLM
    from edgellm.cli import loading

    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(LLM, "load", lambda model, progress, **given: calls.append({"model": model, **given}))
    config = EngineConfig(threads=3, precise=True, window=70, sinks=2, cache_memory=10**9)
    loading.load_llm("m", config)
    assert calls == [{"model": "m", **{f.name: getattr(config, f.name) for f in fields(config)}}]
