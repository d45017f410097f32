"""Small made-up vocabularies as GGUF metadata: byte-level BPE as SmolLM2 has it, SPM as Gemma has it."""

from __future__ import annotations

from typing import Any

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
BPE_CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SPM_CONTROL = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
WORDS = [
    "the",
    "and",
    "is",
    "of",
    "to",
    "in",
    "it",
    "you",
    "that",
    "he",
    "was",
    "for",
    "on",
    "are",
    "with",
    "they",
    "hello",
]


def _chat_template(start: str, end: str, assistant: str) -> str:
    return (
        "{% for message in messages %}"
        f"{{{{ '{start}' + message['role'] + '\\n' + message['content'] + '{end}\\n' }}}}"
        f"{{% endfor %}}{{% if add_generation_prompt %}}{{{{ '{start}{assistant}\\n' }}}}{{% endif %}}"
    )


def get_byte_letters() -> list[str]:
    """Return the letter that stands for each byte in byte-level BPE (Radford et al. 2019, GPT-2's encoder.py)."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, spare = [], 256
    for byte in range(256):
        letters.append(chr(byte if byte in shown else spare))
        spare += byte not in shown
    return letters


def _make_merges(space: str, alphabet: set[str], room: int) -> list[tuple[str, str]]:
    """Return at most `room` merges that build words letter by letter, then pairs of small letters."""
    merges: dict[str, tuple[str, str]] = {}
    for word in WORDS:
        made = space
        for letter in word:
            merges.setdefault(made + letter, (made, letter))
            made += letter
    small = "abcdefghijklmnopqrstuvwxyz"
    for a in small:
        for b in small:
            merges.setdefault(a + b, (a, b))
    possible = [pair for pair in merges.values() if all(set(part) <= alphabet for part in pair)]
    return possible[:room]


def make_bpe(vocab: int, pre: str = "smollm") -> dict[str, Any]:
    """Byte-level BPE of exactly `vocab` tokens: control tokens, bytes (printable ones first), merges, unused ones."""
    letters = get_byte_letters()
    order = [*range(32, 127), 10, *(b for b in range(256) if b != 10 and not 32 <= b < 127)]
    tokens = (BPE_CONTROL + [letters[b] for b in order])[:vocab]
    types = [CONTROL] * len(BPE_CONTROL) + [NORMAL] * (len(tokens) - len(BPE_CONTROL))
    merges = _make_merges(letters[32], set(tokens), vocab - len(tokens))
    tokens += [a + b for a, b in merges]
    types += [NORMAL] * len(merges)
    fill = [f"<|unused_{i}|>" for i in range(vocab - len(tokens))]
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens + fill,
        "tokenizer.ggml.token_type": types + [UNUSED] * len(fill),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.chat_template": _chat_template("<|im_start|>", "<|im_end|>", "assistant"),
    }
    if merges:  # the writer takes no empty array
        metadata["tokenizer.ggml.merges"] = [f"{a} {b}" for a, b in merges]
    return metadata


def make_spm(vocab: int) -> dict[str, Any]:
    """SPM of exactly `vocab` tokens: control tokens, the 256 bytes where there is room, merged pieces, letters."""
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)] if vocab >= 384 else []
    letters = ["\u2581", *(chr(c) for c in range(33, 127))][: max(vocab - len(SPM_CONTROL) - len(byte_tokens), 0)]
    room = vocab - len(SPM_CONTROL) - len(byte_tokens) - len(letters)
    pieces = [a + b for a, b in _make_merges("\u2581", set(letters), room)]
    fill = [f"<unused{i}>" for i in range(room - len(pieces))]
    special = SPM_CONTROL + fill + byte_tokens
    ranked = pieces + letters
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": (special + ranked)[:vocab],
        "tokenizer.ggml.scores": ([-1000.0] * len(special) + [-float(i) for i in range(len(ranked))])[:vocab],
        "tokenizer.ggml.token_type": (
            [CONTROL] * (len(SPM_CONTROL) + len(fill)) + [BYTE] * len(byte_tokens) + [NORMAL] * len(ranked)
        )[:vocab],
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.chat_template": _chat_template("<start_of_turn>", "<end_of_turn>", "model"),
    }


def make_wordpiece(vocab: int, num_types: int = 2, is_cased: bool = False) -> dict[str, Any]:
    """WordPiece of exactly `vocab` tokens as BERT's converter writes it: a word's beginning is marked, its inside is not."""
    letters = [chr(c) for c in range(33, 127) if is_cased or not chr(c).isupper()] + ["\u4f60", "\u597d", "\u00df"]
    control = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = ["\u2581" + letter for letter in letters] + letters + ["\u2581" + word for word in WORDS]
    pieces += [word[2:] for word in WORDS if len(word) > 3]
    fill = [f"\u2581[unused{i}]" for i in range(vocab - len(control) - len(pieces))]
    tokens = (control + pieces + fill)[:vocab]
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL] * len(control) + [NORMAL] * (len(tokens) - len(control)),
        "tokenizer.ggml.token_type_count": num_types,
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.seperator_token_id": 3,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.cls_token_id": 2,
        "tokenizer.ggml.mask_token_id": 4,
    }
