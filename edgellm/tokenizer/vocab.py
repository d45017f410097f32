"""What a GGUF says about its tokens besides their texts: types, special ids, end-of-generation ids, flags.

Knows metadata and names, not how text is cut. `find` and `text_of` come from `bpe.py` or `spm.py`. Source of the names:
llama.cpp, src/llama-vocab.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ModelFileError

Types = npt.NDArray[np.int32]
Find = Callable[[str], "int | None"]

_MARK = "\U0010ffff"

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# A turn ends at any of these, whatever the metadata calls "eos": instruct models use another than base models.
END_NAMES = (
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>"),
    *("<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<eos>"),
    *("<end_of_utterance>", "<turn|>", "<|tool_response>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "[e~["),
)
# Fill-in-the-middle markers after which nothing sensible follows: padding, repository, file separator.
_FIM_END_NAMES = (
    ("fim_pad_token_id", ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]")),
    ("fim_rep_token_id", ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>")),
    ("fim_sep_token_id", ("<|file_sep|>",)),
)
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


def raw_texts(metadata: Mapping[str, Any], key: str) -> list[bytes]:
    """Return an array of strings as bytes. Raises ModelFileError where it is missing or something else."""
    value: Any = metadata.get(key)
    if hasattr(value, "raw_list"):
        return list(value.raw_list())
    if isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(v, str) for v in value):
        return [v.encode() for v in value]
    raise ModelFileError(f"the metadata lacks {key}, or it is not an array of strings: the file holds no vocabulary")


def decode_texts(raw: list[bytes], key: str) -> list[str]:
    """Decode texts; an empty one gets a name, as in llama.cpp. Raises ModelFileError for one that is not UTF-8."""
    try:
        # One call for all is five times faster. The mark is no character; a text that holds it spoils the count.
        texts = _MARK.encode().join(raw).decode().split(_MARK)
        if len(texts) != len(raw):
            texts = [text.decode() for text in raw]
    except UnicodeDecodeError as error:
        near = error.object[max(error.start - 20, 0) : error.start + 20]
        raise ModelFileError(f"{key} holds a string that is not UTF-8, near {near!a}") from None
    return [text or f"[EMPTY_{i}]" for i, text in enumerate(texts)] if "" in texts else texts


def count_tokens(metadata: Mapping[str, Any]) -> int:
    """Return the number of tokens. Raises ModelFileError where the file has none."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    if tokens is None or isinstance(tokens, (str, int, float)) or len(tokens) == 0:
        raise ModelFileError("the metadata lacks tokenizer.ggml.tokens: the file holds no vocabulary")
    return len(tokens)


def get_numbers(metadata: Mapping[str, Any], key: str, count: int) -> npt.NDArray[Any] | None:
    """Return a numeric array that has one value a token, or None. Raises ModelFileError for anything else."""
    value = metadata.get(key)
    if value is None:
        return None
    numbers = np.asarray(value)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iuf" or len(numbers) < count:
        raise ModelFileError(f"{key} must hold {count} numbers, one for each token, and holds {numbers.size}")
    return numbers[:count]


def load_types(metadata: Mapping[str, Any], count: int) -> Types:
    """Return each token's type, int32[V], a copy; every token is NORMAL where the file is silent."""
    types = get_numbers(metadata, "tokenizer.ggml.token_type", count)
    return np.full(count, NORMAL, np.int32) if types is None else types.astype(np.int32)


def get_id(metadata: Mapping[str, Any], name: str, count: int, default: int | None = None) -> int | None:
    """Return `tokenizer.ggml.{name}`, or `default` where it is absent or names no token."""
    value = metadata.get(f"tokenizer.ggml.{name}")
    for candidate in (value, default):
        if type(candidate) is int and 0 <= candidate < count:
            return candidate
    return None


def get_flag(metadata: Mapping[str, Any], name: str, default: bool) -> bool:
    """Return a boolean of the tokenizer's metadata."""
    value = metadata.get(f"tokenizer.ggml.{name}")
    return default if value is None else bool(value)


def find_end_ids(metadata: Mapping[str, Any], types: Types, find: Find) -> frozenset[int]:
    """Return every id that ends generation, and set the type of those tokens to CONTROL: they are never shown.

    A token that is no control token counts only if its name cannot be ordinary text: `<|im_end|>` cannot, `[EOS]` can,
    and a user-defined `</s>` (Gemma 3) is HTML.
    """
    count = len(types)

    def find_end(name: str) -> int | None:
        token = find(name)
        if token is None or types[token] == CONTROL or "|" in name:
            return token
        return token if types[token] != NORMAL and name != "</s>" else None

    named = {name: token for name in END_NAMES if (token := find_end(name)) is not None}
    if {"<|return|>", "<|call|>"} <= named.keys() or {"<|calls|>", "<|flush|>"} <= named.keys():
        named.pop("<|end|>", None)  # ends a message there, not the turn (harmony, solar-open)
    if "<|tool_response>" in named or find("<|plamo:eos|>") is not None:
        named.pop("</s>", None)  # HTML there, not an end
    ends = set(named.values())
    for key, names in _FIM_END_NAMES:
        token = get_id(metadata, key, count)
        candidates = [token] if token is not None else [t for n in names if (t := find_end(n)) is not None]
        ends.update(candidates[:1])
    types[sorted(ends)] = CONTROL
    declared = (get_id(metadata, key, count) for key in _END_KEYS)
    return frozenset(ends.union(t for t in declared if t is not None))


def parse_byte(text: str) -> bytes:
    """Return the byte of a byte token, `<0x0A>`; nothing where the text has another form."""
    try:
        return bytes((int(text[3:5], 16),)) if text.startswith("<0x") else b""
    except ValueError:
        return b""
