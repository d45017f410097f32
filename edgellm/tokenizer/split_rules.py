# ruff: noqa: RUF001  (the ambiguous characters are the vendors' own)
"""How a byte-level BPE vocabulary cuts text into words before merging: the rule behind each `tokenizer.ggml.pre`.

A rule is a list of patterns (Oniguruma, as in the vendors' tokenizer.json), applied one after the other: every match
becomes a word of its own, what lies between matches stays together, and the next pattern cuts those further.
Knows no vocabulary. The next hop is `bpe.py`. Source of names and patterns: llama.cpp, src/llama-vocab.cpp, and the
vendors' tokenizer.json where llama.cpp quotes it. Two rules group the digits of a number from the right; the vendors' own
look-ahead for that takes quadratic time on long numbers, so ours find the groups in other steps, each of linear time.
"""

from __future__ import annotations

import difflib
import warnings
from dataclasses import dataclass

from ..errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class SplitRule:
    """One family of vocabularies.

    `ignore_merges`: a word that is a token is taken whole. `add_bos`: the default where the file is silent.
    `needs_bos`: BOS is added though the file says no (Gemma 4's first files did; llama.cpp#21500).
    `byte_level`: text is mapped to GPT-2's byte alphabet; otherwise spaces become U+2581 and bytes `<0xXX>`.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False
    byte_level: bool = True
    needs_bos: bool = False


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TAIL_SLASH = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"


def _cased(upper: str, lower: str, suffix: str) -> str:
    """Words that end where lower case turns into upper case."""
    return f"{_LEAD}{upper}*{lower}+{suffix}|{_LEAD}{upper}+{lower}*{suffix}"


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = rf"{_CONTRACTIONS}|{_LEAD}\p{{L}}+|\p{{N}}{{1,3}}{_TAIL}"
_QWEN2 = rf"{_CONTRACTIONS}|{_LEAD}\p{{L}}+|\p{{N}}{_TAIL}"
_QWEN35 = (
    rf"{_CONTRACTIONS}|{_LEAD}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT4O = _cased(_UPPER, _LOWER, _CONTRACTIONS + "?") + r"|\p{N}{1,3}" + _TAIL_SLASH
_JAIS2 = (
    rf"{_CONTRACTIONS}|{_LEAD}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|"
    + "".join(rf"\s{{{n}}}(?!\S)|" for n in (512, 256, 128, 64, 32, 16, 8, 4))
    + r"\s{1,2}(?!\S)|\s{1}"
)
_ASCII_WORD = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
_MARKED = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
_DEEPSEEK3 = rf"{_ASCII_WORD}|{_MARKED}| ?[\p{{P}}\p{{S}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_DEEPSEEK3_CJK = r"[一-龥぀-ゟ゠-ヿ]+"
# DeepSeek lists the cased letters of Unicode instead of naming them.
_DEEPSEEK_LETTERS = (
    r"A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ"
    r"-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰"
    r"-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_DEEPSEEK_CJK = r"[一-龥ࠀ-一가-퟿]+"
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_DEEPSEEK_LETTERS}]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$",
    _DEEPSEEK_CJK,
    r"\p{N}",
)
_KIMI = (
    r"[\p{Han}]+|"
    + _cased(
        r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]",
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]",
        _CONTRACTIONS + "?",
    )
    + r"|\p{N}{1,3}"
    + _TAIL
)
_YOUTU = (
    r"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
    _cased(_UPPER, _LOWER, _CONTRACTIONS + "?") + r"|\p{N}" + _TAIL_SLASH,
)
_CHAMELEON = (
    r"<sentinel:[0-9]+>",
    r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    r"([\t\n]|    |  )",
    r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]",
    _GPT2,
)
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
_NEWLINES = r"[^\n]+|[\n]+"
_EXAONE_MOE = (
    rf"{_CONTRACTIONS}|{_LEAD}(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_BAILING = rf"'(?i:[sdmt]|ll|ve|re)|{_LEAD}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
_SEED_CODER = rf"{_CONTRACTIONS}|{_LEAD}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
_MINICPM5 = rf"{_CONTRACTIONS}|{_LEAD}\p{{L}}+|\p{{N}}+{_TAIL}"
_SPARK = rf"{_ASCII_WORD}|{_MARKED}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+"
# Thousands from the right, where a word ends behind the digits: the run, what is too much for threes, and threes by \p{N}{1,3}.
# The vendor's way: \d{1,3}(?=(?:\d{3})*\b)
_TINY_AYA = (r"(?<!\d)\d++\b", r"\A\d{1,2}(?=(?>(?:\d{3})+)\z)", _GPT4O)
# Thousands from the right, all else one word. The vendor's way: \p{N}+, then (?=(\d{3})+(?!\d)). Where a
# sign like ½ touches digits, ours cuts there too.
_SUPERBPE = (r"\p{N}+", r"(?>(?:\d{3})+)(?!\d)", r"\d{3}")
_PUNCTUATION = r"[\p{P}\$\+<=>\^~\|`]+"

# The names that share a rule stand before it, separated by spaces.
_FAMILIES: tuple[tuple[str, SplitRule], ...] = (
    (
        "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum modern-bert roberta-bpe"
        " jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code",
        SplitRule((_GPT2,)),
    ),
    (
        "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
        SplitRule((r"\p{N}", _GPT2)),
    ),
    (
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        SplitRule((_LLAMA3,), ignore_merges=True, add_bos=True),
    ),
    ("dbrx smaug-bpe chatglm-bpe", SplitRule((_LLAMA3,))),
    ("glm4 glm5", SplitRule((_LLAMA3,), ignore_merges=True)),
    (
        "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
        SplitRule((_QWEN2,)),
    ),
    ("qwen35", SplitRule((_QWEN35,))),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", SplitRule((_GPT4O,))),
    (
        "tekken",
        SplitRule((_cased(_UPPER, _LOWER, "") + r"|\p{N}" + _TAIL_SLASH,), ignore_merges=True, add_bos=True),
    ),
    ("deepseek-llm", SplitRule(_DEEPSEEK_LLM)),
    ("deepseek-coder", SplitRule((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}"))),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", SplitRule((r"\p{N}{1,3}", _DEEPSEEK3_CJK, _DEEPSEEK3))),
    ("spark2_5", SplitRule((r"\p{N}{1,3}", _DEEPSEEK3_CJK, _SPARK, r"\p{N}"))),
    ("falcon", SplitRule((_PUNCTUATION, _GPT2, r"[0-9][0-9][0-9]"))),
    ("poro-chat bloom gpt3-finnish", SplitRule((_BLOOM,))),
    ("viking", SplitRule((_BLOOM, r"\p{N}"))),
    ("jais-2", SplitRule((_JAIS2,))),
    ("youtu", SplitRule(_YOUTU, ignore_merges=True)),
    ("tiny_aya cohere2moe", SplitRule(_TINY_AYA)),
    ("superbpe", SplitRule(_SUPERBPE)),
    ("chameleon", SplitRule(_CHAMELEON, add_bos=True)),
    ("kimi-k2", SplitRule((_KIMI,))),
    ("exaone-moe", SplitRule((_EXAONE_MOE,))),
    ("bailingmoe bailingmoe2 llada-moe", SplitRule((_BAILING,))),
    ("seed-coder", SplitRule((_SEED_CODER,))),
    ("ufakzeka", SplitRule((rf"{_LEAD}\p{{L}}+|\p{{N}}{_TAIL}",))),
    ("laguna", SplitRule((_NEWLINES, _QWEN2))),
    ("minicpm5", SplitRule((r"\p{N}{1,3}", _MINICPM5), ignore_merges=True)),
    ("gemma4", SplitRule((_NEWLINES,), add_bos=True, byte_level=False, needs_bos=True)),
    ("sarvam-moe", SplitRule((_NEWLINES,), byte_level=False)),
    ("default", SplitRule((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))),
)

RULES: dict[str, SplitRule] = {name: rule for names, rule in _FAMILIES for name in names.split()}


def get_rule(pre: str | None) -> SplitRule:
    """Return the rule of a `tokenizer.ggml.pre`. None (old files lack the key) means "default", as in llama.cpp: with a
    RuntimeWarning, because that is not the rule of most models.

    Raises UnsupportedError for an unknown name: merging without the model's own rule gives wrong ids.
    """
    if pre is None or pre == "":
        warnings.warn(
            "the file does not say how words are split (tokenizer.ggml.pre is missing, as converters left it out before May"
            " 2024): numbers and words may be cut otherwise than the model learned them; take a newer file of it",
            RuntimeWarning,
            stacklevel=2,
        )
    name = pre or "default"
    if isinstance(name, str) and name in RULES:
        return RULES[name]
    near = difflib.get_close_matches(str(name), RULES, 1)
    hint = f"did the converter mean {near[0]!r}? " if near else ""
    raise UnsupportedError(
        f"tokenizer.ggml.pre is {name!r}, a way of splitting words edgellm does not know; {hint}Known: "
        + ", ".join(sorted(RULES))
    )
