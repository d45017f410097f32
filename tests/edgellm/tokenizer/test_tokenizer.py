"""The facade on made-up vocabularies and on the two real ones. Cases O03, O04, O07, O09, O22."""

from __future__ import annotations

import base64
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf_bytes as gb
import pytest
import tiny_vocabulary
from hypothesis import given
from hypothesis import strategies as st

from edgellm.errors import ModelFileError, OptionError, UnsupportedError
from edgellm.tokenizer import Tokenizer

ROWS = json.loads((Path(__file__).parents[2] / "data" / "tokenize_rows.json").read_text("utf-8"))
Make = Callable[..., Tokenizer]


def make_bpe(**changes: Any) -> Tokenizer:
    return Tokenizer(tiny_vocabulary.make_bpe(512) | {f"tokenizer.ggml.{k}": v for k, v in changes.items()})


def make_spm(**changes: Any) -> Tokenizer:
    return Tokenizer(tiny_vocabulary.make_spm(800) | {f"tokenizer.ggml.{k}": v for k, v in changes.items()})


MAKERS = {"bpe": make_bpe, "spm": make_spm}
PLAIN = make_bpe(), make_spm(), make_spm(add_space_prefix=True)


def texts(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    return [tokenizer.token_text(i) for i in ids]


def test_merges_follow_rank_and_score() -> None:
    assert texts(make_bpe(), make_bpe().encode("hello the")) == ["h", "el", "l", "o", "\u0120the"]
    assert texts(make_spm(), make_spm().encode("x hello")) == ["x", "\u2581hello"]


@pytest.mark.parametrize("tokenizer", PLAIN)
@given(text=st.text(max_size=30).filter(lambda s: "\u2581" not in s))
def test_decoding_gives_the_text_back(tokenizer: Tokenizer, text: str) -> None:
    # U+2581 is SPM's own sign for a space and cannot be told from one.
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("text", ["hello", " hello", "", "   ", "<bos>hello", "<bos> hello <eos>"])
def test_space_prefix_once_at_the_start_and_after_specials(text: str) -> None:
    tokenizer = make_spm(add_space_prefix=True, add_bos_token=False)
    ids = tokenizer.encode(text, special=True)
    assert tokenizer.decode(ids, special=True) == text
    expected = {
        "hello": ["\u2581hello"],
        " hello": ["\u2581", "\u2581hello"],
        "": [],
        "<bos>hello": ["<bos>", "\u2581hello"],
        "<bos> hello <eos>": ["<bos>", "\u2581", "\u2581hello", "\u2581", "<eos>"],
    }
    assert texts(tokenizer, ids) == expected.get(text, texts(tokenizer, ids))


def test_without_space_prefix_text_after_a_special_stays_as_it_is() -> None:
    tokenizer = make_spm(add_bos_token=False)
    assert texts(tokenizer, tokenizer.encode("<pad>the<eos>", special=True)) == ["<pad>", "t", "he", "<eos>"]


def test_special_off_leaves_control_tokens_as_text() -> None:
    for tokenizer, name in ((make_bpe(), "<|im_end|>"), (make_spm(), "<end_of_turn>")):
        ids = tokenizer.encode(f"a{name}b")
        assert not any(tokenizer.is_control(i) for i in ids)
        assert tokenizer.decode(ids) == f"a{name}b"
        assert tokenizer.encode(name, special=True, add_bos=False) == [tokenizer._vocabulary.find(name)]


def test_merges_never_make_a_control_token() -> None:
    metadata = tiny_vocabulary.make_bpe(512)
    tokens = list(metadata["tokenizer.ggml.tokens"])
    metadata["tokenizer.ggml.token_type"] = [3 if t == "\u0120the" else 1 for t in tokens]
    tokenizer = Tokenizer(metadata)
    assert tokenizer.is_control(tokens.index("\u0120the"))
    assert texts(tokenizer, tokenizer.encode(" the")) == ["\u0120th", "e"]


@pytest.mark.parametrize("make", MAKERS.values())
def test_bos_is_added_once(make: Make) -> None:
    tokenizer = make(add_bos_token=True)
    bos, name = tokenizer.bos_id, tokenizer.token_text(tokenizer.bos_id)
    assert tokenizer.encode("hi", special=True)[0] == bos
    assert tokenizer.encode(name + "hi", special=True).count(bos) == 1
    assert tokenizer.encode("hi") == tokenizer.encode("hi", special=True)[1:]
    assert tokenizer.encode("hi", special=True, add_bos=False)[0] != bos
    assert tokenizer.encode("hi", add_bos=True)[0] == bos
    assert tokenizer.encode("", special=True) == [bos]


def test_whether_bos_is_wanted_follows_the_file_then_the_kind() -> None:
    def without_flag(metadata: dict[str, Any]) -> Tokenizer:
        return Tokenizer({k: v for k, v in metadata.items() if k != "tokenizer.ggml.add_bos_token"})

    assert without_flag(tiny_vocabulary.make_spm(800)).add_bos
    assert not without_flag(tiny_vocabulary.make_bpe(512)).add_bos
    assert without_flag(tiny_vocabulary.make_bpe(512, "llama-bpe")).add_bos
    assert not make_spm(add_bos_token=False).add_bos


def test_eos_is_added_where_the_file_wants_it() -> None:
    tokenizer = make_spm(add_eos_token=True)
    assert tokenizer.encode("hi", special=True)[-1] == tokenizer.eos_id
    assert tokenizer.encode("<eos>", special=True)[1:] == [tokenizer.eos_id]
    assert tokenizer.encode_chat("hi")[-1] != tokenizer.eos_id


def test_a_missing_bos_is_reported_when_asked_for() -> None:
    metadata = {k: v for k, v in tiny_vocabulary.make_bpe(512).items() if not k.endswith("bos_token_id")}
    with pytest.raises(OptionError, match="no BOS token"):
        Tokenizer(metadata).encode("a", add_bos=True)
    assert Tokenizer(metadata | {"tokenizer.ggml.add_bos_token": True}).encode("", special=True) == []


def test_control_tokens_print_nothing_unless_asked() -> None:
    tokenizer = make_bpe()
    ids = tokenizer.encode("a<|im_end|>b", special=True)
    assert tokenizer.decode(ids) == "ab"
    assert tokenizer.decode(ids, special=True) == "a<|im_end|>b"
    assert tokenizer.token_bytes(2) == b"" and tokenizer.is_control(2)
    assert 2 in tokenizer.eog_ids and 0 in tokenizer.eog_ids and 1 not in tokenizer.eog_ids


def test_bytes_of_half_characters() -> None:
    for tokenizer in PLAIN[:2]:
        ids = tokenizer.encode("\U0001f638")
        assert b"".join(map(tokenizer.token_bytes, ids)) == "\U0001f638".encode() and len(ids) > 1
        assert tokenizer.decode(ids[:-1]) == "\ufffd"


def test_surrogates_do_not_break_encoding() -> None:
    for tokenizer in PLAIN[:2]:
        assert tokenizer.decode(tokenizer.encode("\ud83d\ude38 \ud800")) == "\U0001f638 \ufffd"


@pytest.mark.parametrize("ids", [[-1], [512], [10**12]])
def test_ids_outside_the_vocabulary_are_refused(ids: list[int]) -> None:
    with pytest.raises(OptionError, match=r"token id -?\d+ is not in the vocabulary; ids go from 0 to 511"):
        make_bpe().decode(ids)


def test_texts_must_be_texts() -> None:
    with pytest.raises(OptionError, match="must be a str, not bytes"):
        make_bpe().encode(b"a")  # type: ignore[arg-type]


def test_a_kind_or_rule_not_known_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"tokenizer\.ggml\.model is 't5'; edgellm knows gpt2"):
        make_bpe(model="t5")
    with pytest.raises(UnsupportedError, match="'no-such-pre'"):
        make_bpe(pre="no-such-pre")
    with pytest.raises(ModelFileError, match=r"lacks tokenizer\.ggml\.model"):
        Tokenizer({})


def test_a_file_that_holds_only_a_vocabulary_is_enough(tmp_path: Path) -> None:
    metadata = tiny_vocabulary.make_bpe(512)
    pairs = [
        *(gb.text(k, v) for k, v in metadata.items() if isinstance(v, str)),
        *(gb.array(k, gb.STRING, metadata[k]) for k in ("tokenizer.ggml.tokens", "tokenizer.ggml.merges")),
        gb.array("tokenizer.ggml.token_type", gb.I32, metadata["tokenizer.ggml.token_type"]),
    ]
    path = tmp_path / "vocab.gguf"
    path.write_bytes(gb.whole(pairs))
    assert Tokenizer.from_gguf(path).encode("hello the") == make_bpe().encode("hello the")


def test_merges_that_a_file_has_lost_are_missed() -> None:
    metadata = tiny_vocabulary.make_bpe(512)
    del metadata["tokenizer.ggml.merges"]
    with pytest.raises(ModelFileError, match=r"lacks tokenizer\.ggml\.merges"):
        Tokenizer(metadata)
    small = tiny_vocabulary.make_bpe(100)
    assert "tokenizer.ggml.merges" not in small and Tokenizer(small).decode(Tokenizer(small).encode("ab")) == "ab"


def test_merges_of_tokens_that_do_not_exist_are_skipped() -> None:
    merges = ["q qq", "broken", *tiny_vocabulary.make_bpe(512)["tokenizer.ggml.merges"]]
    assert make_bpe(merges=merges).encode("hello the") == make_bpe().encode("hello the")


def test_spm_style_bpe_uses_its_own_spaces_and_bytes() -> None:
    tokens = ["<bos>", *(f"<0x{b:02X}>" for b in range(256)), "\u2581", "a", "\u2581a", "\n", "\n\n"]
    tokenizer = Tokenizer(
        {
            "tokenizer.ggml.model": "gemma4",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [3] + [6] * 256 + [1] * 5,
            "tokenizer.ggml.merges": ["\u2581 a", "\n \n"],
            "tokenizer.ggml.bos_token_id": 0,
        }
    )
    ids = tokenizer.encode("a a\n\n\u00e9", special=True)
    assert texts(tokenizer, ids) == ["<bos>", "a", "\u2581a", "\n\n", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(ids) == "a a\n\n\u00e9"


def test_phi3_control_tokens_swallow_the_space_after_them() -> None:
    tokenizer = Tokenizer(tiny_vocabulary.make_spm(800) | {"general.name": "Phi-3 mini"})
    assert texts(tokenizer, tokenizer.encode("<end_of_turn>\n  a<unk> a", special=True, add_bos=False)) == [
        "<end_of_turn>",
        "a",
        "<unk>",
        "\u2581a",
    ]


def long_texts() -> Iterator[tuple[str, str]]:
    yield "a", "a" * 100_000
    yield "chinese", "\u7684" * 50_000
    yield "equals", "=" * 200_000
    yield "base64", base64.b64encode(random.Random(1).randbytes(750_000)).decode()
    yield "spaces", " " * 100_000
    yield "openings", "<|im_" * 20_000


LONG = dict(long_texts())


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("kind", MAKERS)
def test_long_runs_take_linear_time(kind: str, name: str) -> None:
    tokenizer, text = MAKERS[kind](), LONG[name]
    started = time.perf_counter()
    ids = tokenizer.encode(text, special=True)
    # Two seconds is the aim and a quarter is measured; quadratic time would be minutes.
    assert time.perf_counter() - started < 10
    if len(ids) < 500_000:
        assert tokenizer.decode(ids) == text


@pytest.mark.model
@pytest.mark.parametrize("name", ROWS)
def test_ids_are_those_of_llama_cpp(name: str, request: pytest.FixtureRequest) -> None:
    tokenizer = Tokenizer.from_gguf(request.getfixturevalue(f"{name}_path"))
    for row in ROWS[name]:
        assert tokenizer.encode(row["text"]) == row["plain"], row["text"]
        assert tokenizer.encode(row["text"], special=True) == row["special"], row["text"]
        assert tokenizer.decode(row["plain"]) == row["text"]


@pytest.mark.model
def test_ends_of_generation_of_real_files(smollm2_path: Path, gemma3_path: Path) -> None:
    assert {0, 2} <= Tokenizer.from_gguf(smollm2_path).eog_ids
    assert Tokenizer.from_gguf(gemma3_path).eog_ids == {1, 106}


@pytest.mark.model
def test_long_runs_of_real_vocabularies(gemma3_path: Path, smollm2_path: Path) -> None:
    for path in (gemma3_path, smollm2_path):
        tokenizer = Tokenizer.from_gguf(path)
        for name in ("a", "chinese", "spaces"):
            started = time.perf_counter()
            assert tokenizer.decode(tokenizer.encode(LONG[name])) == LONG[name]
            assert time.perf_counter() - started < 10
