"""How each `tokenizer.ggml.pre` cuts words (case O08). The expected cuts are written by hand from the vendors' rules."""

from __future__ import annotations

import pytest

from edgellm.errors import UnsupportedError
from edgellm.tokenizer.split_rules import _FAMILIES, RULES, get_rule


def cut(pre: str, text: str) -> list[str]:
    from tokenizers import Regex, pre_tokenizers

    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in get_rule(pre).patterns]
    return [piece for piece, _ in pre_tokenizers.Sequence(steps).pre_tokenize_str(text)]


DIGITS = "3333+777?"
CASES = {
    "gpt-2": (DIGITS, ["3333", "+", "777", "?"]),
    "smollm": (DIGITS, ["3", "3", "3", "3", "+", "7", "7", "7", "?"]),
    "llama-bpe": (DIGITS, ["333", "3", "+", "777", "?"]),
    "qwen2": (DIGITS, ["3", "3", "3", "3", "+", "7", "7", "7", "?"]),
    "falcon": (DIGITS, ["333", "3", "+", "777", "?"]),
    "default": (DIGITS, ["333", "3", "+", "777", "?"]),
    "deepseek-llm": (DIGITS, ["3", "3", "3", "3", "+", "7", "7", "7", "?"]),
    "deepseek-v3": (DIGITS, ["333", "3", "+", "777", "?"]),
    "tekken": ("HelloWorld 12", ["Hello", "World", " ", "1", "2"]),
    "gpt-4o": ("HelloWORLD's 1234", ["Hello", "WORLD's", " ", "123", "4"]),
    "chatglm-bpe": ("it's 1234", ["it", "'s", " ", "123", "4"]),
    "qwen35": ("x\u0301y", ["x\u0301y"]),
    "kimi-k2": ("ab\u4e2d\u6587c", ["ab", "\u4e2d\u6587", "c"]),
    "bloom": ("Hi there, you", ["Hi", " there", ",", " you"]),
    "viking": ("a 12", ["a", " ", "1", "2"]),
    "jais-2": ("a" + " " * 7 + "b", ["a", " " * 4, " " * 2, " b"]),
    "gemma4": ("a b\n\nc", ["a b", "\n\n", "c"]),
    "sarvam-moe": ("a b\n\nc", ["a b", "\n\n", "c"]),
    "laguna": ("a b\nc", ["a", " b", "\n", "c"]),
    "minicpm5": ("12345 I'm", ["123", "45", " I", "'m"]),
    "exaone-moe": ("a b\nc", ["a b", "\n", "c"]),
    "ufakzeka": ("Ali'nin", ["Ali", "'nin"]),
    "seed-coder": ("a!\n", ["a", "!", "\n"]),
    "spark2_5": ("a\n\n", ["a", "\n", "\n"]),
    "bailingmoe": ("I'm\n\n", ["I", "'m", "\n\n"]),
    "youtu": ("\u4e2d\u6587a1", ["\u4e2d\u6587", "a", "1"]),
    "tiny_aya": ("a 12345", ["a", " ", "12", "345"]),
    "superbpe": ("by the way 12345", ["by the way ", "12", "345"]),
    "chameleon": ("a.b", ["a", ".", "b"]),
    "deepseek-coder": ("a+\u4e2d", ["a", "+", "\u4e2d"]),
}


@pytest.mark.parametrize("pre", CASES)
def test_words_of_a_rule(pre: str) -> None:
    text, words = CASES[pre]
    assert cut(pre, text) == words


def test_every_family_has_a_case() -> None:
    tested = {id(RULES[pre]) for pre in CASES}
    assert [names for names, rule in _FAMILIES if id(rule) not in tested and names != "glm4 glm5"] == []


def test_no_name_stands_in_two_families() -> None:
    names = [name for names, _ in _FAMILIES for name in names.split()]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("pre", sorted(RULES))
def test_no_character_is_lost(pre: str) -> None:
    text = "I'm  n\u00e4ive \u00bd 12345\t\r\n\n\u4e2d\u6587 <|x|> e\u0301 \U0001f638  "
    assert "".join(cut(pre, text)) == text


def test_a_file_without_the_key_uses_the_default_rule() -> None:
    with pytest.warns(RuntimeWarning, match="does not say how words are split"):
        assert get_rule(None) is get_rule("default")


def test_an_unknown_name_is_refused_with_what_is_known() -> None:
    with pytest.raises(UnsupportedError, match=r"'no-such-pre'.*Known: .*llama-bpe"):
        get_rule("no-such-pre")
    with pytest.raises(UnsupportedError, match="did the converter mean 'qwen2'"):
        get_rule("qwen-2")
