"""Case O09 for every family and kind of vocabulary: the space before a text, what begins and ends it, and the text back.

The rule after a special token is llama.cpp's: a vocabulary with a space prefix puts it before the text behind one too.
"""

from __future__ import annotations

from typing import Any

import pytest
import stored_headers as headers
import tiny_vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.errors import UnsupportedError
from edgellm.tokenizer import Tokenizer

BPE, SPM, WORDPIECE = "gpt2", "llama", "bert"
DEFAULT_BOS = {"llama-bpe", "lfm2", "pixtral", "falcon3", "midm-2.0", "tekken", "gemma4"}
"""Rules of byte-level vocabularies that begin a text with BOS where the file is silent (llama.cpp, src/llama-vocab.cpp)."""
every_model = pytest.mark.parametrize("name", headers.NAMES)


def make(name: str, **changes: Any) -> Tokenizer:
    """The tokenizer of a stored model, with other keys after tokenizer.ggml; None takes one out."""
    metadata = headers.read(name).metadata | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    return Tokenizer({key: value for key, value in metadata.items() if value is not None})


def kind(name: str) -> str:
    return str(headers.read(name).metadata["tokenizer.ggml.model"])


def texts(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    return [tokenizer.token_text(i) for i in ids]


SPM_MODELS = [name for name in headers.NAMES if kind(name) == SPM]
OTHERS = [name for name in headers.NAMES if kind(name) != SPM]


@every_model
@pytest.mark.parametrize("said", [True, False, None])
def test_an_empty_text_has_nothing_but_what_the_file_puts_around_texts(name: str, said: bool | None) -> None:
    tokenizer = make(name, add_bos_token=said, add_eos_token=said)
    bos = [tokenizer.bos_id] if said or (said is None and kind(name) in (SPM, WORDPIECE)) else []
    eos = [tokenizer.eos_id] if said or (said is None and kind(name) == WORDPIECE) else []
    assert tokenizer.encode("", special=True) == bos + eos
    assert tokenizer.encode("") == []
    words = tokenizer.encode("the hello", special=True)
    plain = tokenizer.encode("the hello")
    assert words == bos + plain + eos and plain
    begun = "".join(map(tokenizer.token_text, bos)) + "the hello" + "".join(map(tokenizer.token_text, eos))
    assert tokenizer.encode(begun, special=True) == words, "neither is doubled"


@pytest.mark.parametrize("pre", ["smollm", "qwen2", "dbrx", "gpt-4o", "deepseek-v3", *sorted(DEFAULT_BOS)])
def test_which_byte_level_vocabularies_begin_with_bos_where_the_file_is_silent(pre: str) -> None:
    metadata = tiny_vocabulary.make_bpe(512, pre)
    del metadata["tokenizer.ggml.add_bos_token"]
    if pre == "gemma4":  # has no byte alphabet
        metadata["tokenizer.ggml.model"] = "gemma4"
    tokenizer = Tokenizer(metadata)
    assert tokenizer.encode("", special=True) == ([1] if pre in DEFAULT_BOS else [])


def test_gemma_4_begins_with_bos_though_its_first_files_say_no() -> None:
    metadata = tiny_vocabulary.make_bpe(512) | {"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.add_bos_token": False}
    assert Tokenizer(metadata).encode("", special=True) == [1]
    assert Tokenizer(metadata).encode("", special=True, add_bos=False) == []


@pytest.mark.parametrize("name", SPM_MODELS)
@pytest.mark.parametrize("said", [True, False, None])
def test_a_sentencepiece_text_has_the_space_once_and_so_has_the_text_behind_a_special(
    name: str, said: bool | None
) -> None:
    tokenizer = make(name, add_bos_token=False, add_space_prefix=said)
    has_prefix = said is not False  # SentencePiece's default; Gemma's files say no
    first = "▁" if has_prefix else ""
    expected = {
        "Q": [*first, "Q"],
        " Q": [*first, "▁", "Q"],
        "<bos>Q": ["<bos>", *first, "Q"],
        "<bos> Q<eos>": ["<bos>", *first, "▁", "Q", "<eos>"],
        "<bos><eos>": ["<bos>", "<eos>"],
        "<pad>Q<eos>Q": ["<pad>", *first, "Q", "<eos>", *first, "Q"],
        "": [],
        "   ": [*first, "▁", "▁", "▁"],
    }
    for text, pieces in expected.items():
        ids = tokenizer.encode(text, special=True)
        assert texts(tokenizer, ids) == pieces, text
        assert tokenizer.decode(ids, special=True) == text
    inside = tokenizer.encode_inside("Q")
    assert texts(tokenizer, inside) == ["Q"], "text that goes on after other text"


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("said", [True, False, None])
def test_other_vocabularies_never_put_a_space_before_a_text(name: str, said: bool | None) -> None:
    """The byte-level ones, whatever the key says; in WordPiece ones each word has its mark already."""
    tokenizer = make(name, add_bos_token=False, add_eos_token=False, add_space_prefix=said)
    mark = tokenizer.token_text(tokenizer.encode("", add_bos=True)[0])
    plain = tokenizer.encode("hello")
    assert texts(tokenizer, plain)[0] in ("h", "hello", "▁hello")
    behind = tokenizer.encode(f"{mark}hello", special=True)
    assert behind[0] == tokenizer.bos_id and behind[1:] == plain
    if kind(name) == BPE:
        assert tokenizer.decode(plain) == "hello" and tokenizer.decode(tokenizer.encode(" hello")) == " hello"
        assert tokenizer.decode(tokenizer.encode("   ")) == "   "
    else:
        assert tokenizer.encode("   ") == [] and tokenizer.encode(" hello ") == plain
        assert tokenizer.decode(tokenizer.encode("the hello you")) == "the hello you"


LETTERS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=24)


@every_model
@settings(max_examples=10)
@given(text=LETTERS, prefix=st.booleans())
def test_the_text_comes_back(name: str, text: str, prefix: bool) -> None:
    """WordPiece keeps neither case nor spaces: what it gives back gives the same tokens again."""
    tokenizer = _cached(name, prefix)
    ids = tokenizer.encode(text)
    if kind(name) == WORDPIECE:
        assert tokenizer.encode(tokenizer.decode(ids)) == ids
    else:
        assert tokenizer.decode(ids) == text
        framed = tokenizer.encode(text, special=False, add_bos=True)
        assert tokenizer.decode(framed) == text and framed[1:] == ids


_TOKENIZERS: dict[tuple[str, bool], Tokenizer] = {}


def _cached(name: str, prefix: bool) -> Tokenizer:
    if (name, prefix) not in _TOKENIZERS:
        _TOKENIZERS[name, prefix] = make(name, add_space_prefix=prefix)
    return _TOKENIZERS[name, prefix]


@every_model
def test_a_kind_of_vocabulary_that_edgellm_lacks_is_refused_by_name(name: str) -> None:
    for model in ("t5", "rwkv", "plamo2", "none", "no_vocab"):
        with pytest.raises(UnsupportedError, match=rf"tokenizer\.ggml\.model is '{model}'; edgellm knows gpt2, gemma4"):
            make(name, model=model)
