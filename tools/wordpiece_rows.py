"""What Transformers' BertTokenizer makes of odd texts with a made-up vocabulary, for the tests of WordPiece.

    TORCH_PYTHON tools/wordpiece_rows.py

Runs in a Python that has transformers. Both of its tokenizers, the one in Python and the one in Rust, must agree. Writes
tests/data/wordpiece_rows.json: per case a text, whether the vocabulary is cased, ids; and pairs with their token types.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "tests" / "data" / "wordpiece_rows.json"
VOCAB = 400
TEXTS = [
    "",
    " ",
    "hello",
    "Hello THE world, you!",
    "\thello\n\r\nthe \u00a0and\u3000is  ",
    "a" * 100,
    "a" * 101 + " the",
    "na\u00efve caf\u00e9 na\u0308ive \u00c5ngstro\u0308m",
    "Stra\u00dfe STRASSE \u0130stanbul",
    "\u4f60\u597dhello\u4f60 \u597d",
    "the\u0000is\ufffdof\u0007it",
    "zero\u200bwidth\u200djoin\ufeffbom",
    "it's a-b_c/d\\e [CLS] [SEP] [MASK] [UNK] [PAD]",
    "don\u2019t \u201cquote\u201d \u2014 dash\u2026",
    "\U0001f600the \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "x\u0301y\u0327 \u0e01\u0e33 \u0915\u094d\u0937",
    "3.14 1,000 $5 50% a+b=c <tag> `code` ^_^ ~|",
    "\uff28\uff45\uff4c\uff4c\uff4f \uac00\ub098 \u30ab\u30bf\u30ab\u30ca",
    "## ##a the##the",
    "\u2581the \u2581",
    "thethe hellohello wasthat",
    "\u00ad soft\u00adhyphen \u2028line\u2029paragraph\u0085next",
    "\x1b[0m escape \x7f",
]
PAIRS = [("hello", "the and"), ("", "of"), ("caf\u00e9 \u4f60", "it is \U0001f600")]


def make_rows(folder: Path, is_cased: bool) -> dict[str, Any]:
    """Rows of one vocabulary."""
    from tiny_vocabulary import make_wordpiece
    from transformers import BertTokenizer, BertTokenizerLegacy

    metadata = make_wordpiece(VOCAB, is_cased=is_cased)
    types = metadata["tokenizer.ggml.token_type"]
    words = [_spell(t, kind) for t, kind in zip(metadata["tokenizer.ggml.tokens"], types, strict=True)]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    quick = BertTokenizer(vocab={word: i for i, word in enumerate(words)}, do_lower_case=not is_cased)
    slow = BertTokenizerLegacy(str(folder / "vocab.txt"), do_lower_case=not is_cased)
    rows = []
    for text in TEXTS:
        # Both find special tokens that are spelled in a text; a user's text never becomes one here.
        pieces = [quick.backend_tokenizer.model.tokenize(word) for word in _words(quick, text)]
        ids = [token.id for piece in pieces for token in piece]
        if "[" not in text:
            assert ids == slow.convert_tokens_to_ids(slow.tokenize(text)), text
            assert ids == quick(text, add_special_tokens=False)["input_ids"], text
        rows.append({"text": text, "ids": ids})
    pairs = []
    for first, second in PAIRS:
        done = quick(first, second)
        pairs.append({"pair": [first, second], "ids": done["input_ids"], "types": done["token_type_ids"]})
    return {"is_cased": is_cased, "rows": rows, "pairs": pairs}


def _words(tokenizer: Any, text: str) -> list[str]:
    backend = tokenizer.backend_tokenizer
    return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text))]


def _spell(text: str, kind: int) -> str:
    """A token as BERT's own files spell it."""
    if kind == 3:  # control
        return text
    return text[1:] if text.startswith("\u2581") else "##" + text


def main() -> None:
    """Write the file."""
    sys.path[:0] = [str(ROOT / "tests" / "support")]
    with tempfile.TemporaryDirectory() as folder:
        found = [make_rows(Path(folder), is_cased) for is_cased in (False, True)]
    TARGET.write_text(json.dumps(found, ensure_ascii=True, indent=1) + "\n", encoding="ascii")
    print(f"wrote {TARGET.relative_to(ROOT)}: {sum(len(x['rows']) for x in found)} texts")


if __name__ == "__main__":
    main()
