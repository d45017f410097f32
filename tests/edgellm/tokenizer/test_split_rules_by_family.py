"""Case O08 for every family: the split rules that llama.cpp's converter names in its files are known and cut as the vendors' do.

The table is a fact about published models: which `tokenizer.ggml.pre` their files say (llama.cpp, conversion/base.py, which
names the repository behind each, and the vocabularies that llama.cpp ships).
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import stored_headers as headers
import tiny_vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from edgellm import models
from edgellm.errors import UnsupportedError
from edgellm.tokenizer import Tokenizer
from edgellm.tokenizer.split_rules import RULES, get_rule

FAMILIES: dict[str, str] = {
    "arcee": "llama-bpe",
    "bert": "roberta-bpe",
    "cohere2": "command-r tiny_aya",
    "deepseek2": "deepseek-llm deepseek-v3 kimi-k2 glm4 youtu joyai-llm kanana2",
    "gemma": "",
    "gemma-embedding": "",
    "gemma2": "",
    "gemma3": "",
    "gemma4": "gemma4",
    "glm4": "glm4 chatglm-bpe",
    "gpt-oss": "gpt-4o",
    "granite": "refact dbrx",
    "granitehybrid": "dbrx llama-bpe",
    "granitemoe": "refact dbrx",
    "lfm2": "lfm2",
    "lfm2moe": "lfm2",
    "llama": "llama-bpe smollm smaug-bpe tekken pixtral falcon3 deepseek-llm deepseek-coder minerva-7b megrez viking"
    " seed-coder mellum minicpm5 trillion midm-2.0",
    "mamba2": "mpt",
    "mistral3": "tekken",
    "nomic-bert": "",
    "olmo2": "dbrx superbpe",
    "olmoe": "olmo",
    "phi3": "dbrx gpt-4o",
    "qwen2": "qwen2 deepseek-r1-qwen a.x-4.0 kormo",
    "qwen2moe": "qwen2",
    "qwen3": "qwen2 f2llmv2 deepseek-r1-qwen",
    "qwen35": "qwen35",
    "qwen35moe": "qwen35",
    "qwen3moe": "qwen2",
    "qwen3next": "qwen2",
    "smollm3": "smaug-bpe",
    "stablelm": "stablelm2",
    "starcoder2": "starcoder",
}
"""Architecture: the names in its byte-level BPE files. None: its files have SentencePiece or WordPiece vocabularies."""
ONE, THREE, RIGHT, WHOLE = "3 3 3 3 + 7 7 7 ?", "333 3 + 777 ?", "3 333 + 777 ?", "3333 + 777 ?"
DIGITS = {
    ONE: "command-r deepseek-coder deepseek-llm qwen2 deepseek-r1-qwen f2llmv2 kormo megrez qwen35 smollm starcoder refact"
    " minerva-7b stablelm2 tekken youtu viking seed-coder",
    THREE: "llama-bpe falcon3 pixtral smaug-bpe dbrx chatglm-bpe glm4 gpt-4o kanana2 lfm2 deepseek-v3 joyai-llm kimi-k2"
    " midm-2.0 minicpm5",
    RIGHT: "tiny_aya superbpe",
    WHOLE: "a.x-4.0 olmo mpt roberta-bpe trillion mellum",
}
"""What becomes of 3333+777? : digits one by one, by threes from the left or from the right, or numbers whole."""
NOT_CUT = {"gemma4"}
"""Merges run over whole lines."""
LINES = {
    "qwen2": ("I've 12 apples", "I | 've |   | 1 | 2 |  apples"),
    "llama-bpe": ("I'VE 1234\n\n  x", "I | 'VE |   | 123 | 4 | \n\n |   |  x"),
    "gpt-4o": ("don'T HelloWorld/\n", "don'T |  Hello | World | /\n"),
    "tekken": ("don't HelloWorld", "don | 't |  Hello | World"),
    "starcoder": ("x=10; y", "x | = | 1 | 0 | ; |  y"),
    "refact": ("I'll  go", "I | 'll |   |  go"),
    "olmo": ("in 1998!", "in |  1998 | !"),
    "deepseek-v3": ("a-b 12345", "a | -b |   | 123 | 45"),
    "deepseek-llm": ("say 42", "say |   | 4 | 2"),
    "kimi-k2": ("ab中文c", "ab | 中文 | c"),
    "qwen35": ("x́ 1", "x́ |   | 1"),
    "gemma4": ("a 12\n\nb", "a 12 | \n\n | b"),
    "tiny_aya": ("1234567 12ab x12345", "1 | 234 | 567 |   | 12 | ab |  x | 12 | 345"),
    "superbpe": ("by the way 12345", "by the way  | 12 | 345"),
    "command-r": ("a 2024", "a |   | 2 | 0 | 2 | 4"),
    "lfm2": ("it's 2024", "it | 's |   | 202 | 4"),
    "dbrx": ("100000 km", "100 | 000 |  km"),
    "glm4": ("x 9999", "x |   | 999 | 9"),
    "stablelm2": ("v2.10", "v | 2 | . | 1 | 0"),
    "youtu": ("한글a12", "한글 | a | 1 | 2"),
}
"""A line of each: the words its rule makes, parted by " | "."""
NAMES = sorted({pre for names in FAMILIES.values() for pre in names.split()})


NOT_OURS = {
    "afmoe": "Trinity",
    "granite-embed-multi-97m": "ModernBERT",
    "granite-embed-multi-311m": "ModernBERT",
    "jina-v2-en": "a WordPiece vocabulary",
    "bert-bge": "a WordPiece vocabulary",
    "bert-bge-large": "a WordPiece vocabulary",
    "whitespace": "Jina's BERT for Chinese",
}
"""What llama.cpp's converter writes and edgellm does not know, with what has it."""


def cut(pre: str, text: str) -> list[str]:
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in get_rule(pre).patterns]
    return [piece for piece, _ in pre_tokenizers.Sequence(steps).pre_tokenize_str(text)]


def test_the_table_tells_of_every_architecture_and_its_names_are_known() -> None:
    assert set(FAMILIES) == set(models.ARCHITECTURES)
    assert [pre for pre in NAMES if pre not in RULES] == []
    told = [pre for names in DIGITS.values() for pre in names.split()]
    assert sorted(told) == sorted(set(NAMES) - NOT_CUT)


@pytest.mark.parametrize(("pre", "words"), [(pre, words) for words, names in DIGITS.items() for pre in names.split()])
def test_digits_are_cut_as_the_vendor_cuts_them(pre: str, words: str) -> None:
    assert cut(pre, "3333+777?") == words.split()


@pytest.mark.parametrize("pre", LINES)
def test_words_of_a_line(pre: str) -> None:
    text, words = LINES[pre]
    assert cut(pre, text) == words.split(" | ")


@pytest.mark.parametrize("pre", NAMES)
@settings(max_examples=25)
@given(text=st.text(st.sampled_from("0123456789aZé中½ ́.,'s\n\t_+"), max_size=40) | st.text(max_size=20))
def test_no_rule_loses_or_moves_a_character(pre: str, text: str) -> None:
    assert "".join(cut(pre, text)) == text


@pytest.mark.parametrize("digits", ["1" * 100_000, "1" * 100_000 + "a", "1234567a" * 10_000])
@pytest.mark.parametrize("pre", ["tiny_aya", "superbpe"])
def test_digits_from_the_right_take_linear_time(pre: str, digits: str) -> None:
    """The vendors' look-ahead takes minutes here; ours a fifth of a second, also on a busy machine less than this."""
    import time

    started = time.perf_counter()
    words = cut(pre, digits)
    assert time.perf_counter() - started < 5
    assert "".join(words) == digits and max(map(len, words)) <= 3


@given(text=st.text(st.sampled_from("0123456789 ab_.,x"), max_size=24))
def test_digits_from_the_right_are_the_vendors(text: str) -> None:
    """The vendors' own patterns, whose time grows with the square of a number's length, say the same."""
    for pre, steps in (
        ("tiny_aya", (r"\d{1,3}(?=(?:\d{3})*\b)", RULES["gpt-4o"].patterns[0])),
        ("superbpe", (r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
    ):
        splits = [pre_tokenizers.Split(Regex(step), "isolated") for step in steps]
        assert cut(pre, text) == [word for word, _ in pre_tokenizers.Sequence(splits).pre_tokenize_str(text)]


def metadata_of(name: str, **changes: Any) -> dict[str, Any]:
    metadata = headers.read(name).metadata | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    return {key: value for key, value in metadata.items() if value is not None}


BPE = [name for name in headers.NAMES if headers.read(name).metadata["tokenizer.ggml.model"] == "gpt2"]
OTHERS = [name for name in headers.NAMES if name not in BPE]


@pytest.mark.parametrize("name", BPE)
def test_an_unknown_rule_is_refused_by_name(name: str) -> None:
    for pre in ("no-such-pre", "qwen-2", "llama4 ", "LLAMA-BPE"):
        with pytest.raises(UnsupportedError, match=f"tokenizer.ggml.pre is '{pre}'") as error:
            Tokenizer(metadata_of(name, pre=pre))
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("pre", NOT_OURS)
def test_rules_of_models_that_edgellm_lacks_are_refused_by_name(pre: str) -> None:
    with pytest.raises(UnsupportedError, match=f"'{pre}'"):
        Tokenizer(metadata_of("llama", pre=pre))


@pytest.mark.parametrize("name", BPE)
def test_a_rule_that_is_no_text_is_refused(name: str) -> None:
    for pre in (7, True, ["qwen2"]):
        with pytest.raises(UnsupportedError, match=r"tokenizer\.ggml\.pre is "):
            Tokenizer(metadata_of(name, pre=pre))


@pytest.mark.parametrize("name", OTHERS)
def test_vocabularies_without_split_rules_do_not_care(name: str) -> None:
    """SentencePiece and WordPiece have none: converters wrote "default" there, the model's own name, or nothing."""
    usual = Tokenizer(metadata_of(name)).encode("they said 3333+777?", special=True)
    for pre in (None, "bert-bge", "no-such-pre"):
        assert Tokenizer(metadata_of(name, pre=pre)).encode("they said 3333+777?", special=True) == usual


@pytest.mark.parametrize("name", BPE)
def test_a_missing_rule_is_llama_cpps_default_and_said_aloud(name: str) -> None:
    for pre in (None, ""):
        with pytest.warns(RuntimeWarning, match=r"does not say how words are split \(tokenizer\.ggml\.pre is missing"):
            silent = Tokenizer(metadata_of(name, pre=pre))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            default = Tokenizer(metadata_of(name, pre="default"))
        assert silent.encode("they said 3333+777?") == default.encode("they said 3333+777?")


@pytest.mark.parametrize("pre", sorted(set(NAMES) - NOT_CUT))
def test_the_rule_reaches_the_ids(pre: str) -> None:
    """A vocabulary in which digits merge: a rule that keeps them apart keeps their tokens apart."""
    metadata = tiny_vocabulary.make_bpe(512, pre)
    merges = ["3 3", "33 3", "33 33", "7 7", "77 7"]
    tokens = [*metadata["tokenizer.ggml.tokens"], *(merge.replace(" ", "") for merge in merges)]
    metadata |= {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": metadata["tokenizer.ggml.token_type"] + [1] * len(merges),
        "tokenizer.ggml.merges": merges + metadata["tokenizer.ggml.merges"],
    }
    tokenizer = Tokenizer(metadata)
    words = [tokenizer.token_text(i) for i in tokenizer.encode("3333+777?")]
    wanted = next(words for words, names in DIGITS.items() if pre in names.split()).split()
    assert words == wanted
    assert tokenizer.decode(tokenizer.encode("3333+777?")) == "3333+777?"
