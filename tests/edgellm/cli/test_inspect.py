"""`edgellm inspect`: words first, tables after, JSON that any parser reads."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf_bytes as gb
import pytest
from reference_models import unpack
from tiny_models import write_tiny

from edgellm.cli import main
from edgellm.cli.inspect import paragraph
from edgellm.gguf import open_gguf
from edgellm.inspect import summarise


def unreadable(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A sound file whose texts try things: an escape sequence, infinity, broken UTF-8, a long text."""
    tokens = gb.string("a") + gb.string(b"\xff\xfe") + gb.string("c") * 8
    pairs = [
        gb.text("general.architecture", "mystery"),
        gb.text("general.name", "Red \x1b[31m name"),
        gb.text("general.description", "x\x1b]0;title\x07y\n" + "long " * 100),
        gb.scalar("mystery.context_length", gb.U32, 1234),
        gb.scalar("some.scale", gb.F32, float("inf")),
        gb.pair("tokenizer.ggml.tokens", gb.ARRAY, struct.pack("<IQ", gb.STRING, 10) + tokens),
        gb.array("short", gb.U32, [1, 2, 3]),
    ]
    path = tmp_path / "hostile.gguf"
    path.write_bytes(gb.whole(pairs, [gb.tensor("w\x1b[0m", (4, 2))], bytes(32)))
    return path


def test_words_and_tables(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(hostile)]) == 0
    out = capsys.readouterr().out
    first, *_ = out.splitlines()
    assert "a mystery model of 8 parameters" in first
    assert "trained on up to 1234 tokens" in out
    assert "edgellm cannot run it: " in out and "mystery" in out
    for title in ("network", "formats", "metadata (7)", "tensors (1)"):
        assert f"\n{title}\n" in out
    assert "4x2" not in out and "2x4" in out  # outermost first
    assert "…] (10 items)" in out and "characters)" in out and "[1, 2, 3]" in out
    assert not set(out) & {"\x1b", "\x07"}
    assert max(map(len, out.splitlines()[6:])) < 150


def test_what_a_person_wants_to_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_tiny(tmp_path / "m.gguf", "gemma3", layers=7, window=16, context=32768)
    assert main(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert "It has 7 layers, 6 of which see a window of 16 tokens." in out
    assert "With a context of 4096 tokens" in out and "With a context of 32768 tokens" in out
    assert re.search(r"Here, on \d+ threads?, expect about [\d.]+ tokens/s of an answer and [\d.]+ tokens/s of a", out)
    assert "experts" not in out and "cannot run" not in out
    assert main(["inspect", str(path), "--max-context", "8192"]) == 0
    assert capsys.readouterr().out.count("With a context of ") == 1


def test_experts_and_layers_without_keys_and_values_are_told(tmp_path: Path) -> None:
    with open_gguf(write_tiny(tmp_path / "m.gguf", layers=3)) as file:
        summary = summarise(file)
    assert summary.cache_layers is not None
    mixed = replace(summary, num_experts=32, num_used_experts=4, cache_layers=summary.cache_layers[:1])
    said = paragraph(mixed, None)
    assert (
        "It has 3 layers, 2 of which keep nothing in place of keys and values; a token takes 4 of a layer's 32 experts."
        in said
    )


def test_layers_with_a_state_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(unpack("lfm2", tmp_path))]) == 0
    assert re.search(
        r"of which keep a state of fixed size \([\d.]+ \w?B in all\) in place of keys", capsys.readouterr().out
    )


def test_json(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(hostile), "--json", "--max-context", "77"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    shown: dict[str, Any] = json.loads(out, parse_constant=unreadable)
    assert (shown["architecture"], shown["num_parameters"], shown["max_context"]) == ("mystery", 8, 77)
    assert shown["metadata"]["some.scale"] == "inf"
    assert shown["metadata"]["short"] == [1, 2, 3]
    assert shown["metadata"]["tokenizer.ggml.tokens"] == {"length": 10, "first": ["a", "\ufffd\ufffd", *"cccc"]}
    assert shown["tensors"] == [{"name": "w\x1b[0m", "format": "F32", "shape": [2, 4], "nbytes": 32}]


def test_a_cache_type_that_is_none_is_refused(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(hostile), "--cache-type-v", "q4_0"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("edgellm: --cache-type-v must be one of f16, ") and err.count("\n") == 1


def test_a_file_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.gguf"
    path.write_text("<html>")
    assert main(["inspect", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("edgellm: ") and err.count("\n") == 1


@pytest.mark.model
def test_a_real_model(smollm2_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(smollm2_path), "--max-context", "8192"]) == 0
    out = capsys.readouterr().out
    assert "a llama model of 135 million parameters in 98 MB" in out
    assert "(24 kB a token, keys i16, values i16)" in out
    assert "With a context of 8192 tokens it needs" in out and "It has a chat template." in out
