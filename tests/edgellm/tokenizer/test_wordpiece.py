"""WordPiece: the ids that Transformers' BertTokenizer gives (tools/wordpiece_rows.py), and what files leave out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_vocabulary

from edgellm.errors import ModelFileError
from edgellm.reranking import write_pair
from edgellm.tokenizer import Tokenizer

CASES = json.loads((Path(__file__).parents[2] / "data" / "wordpiece_rows.json").read_text("ascii"))


def make(is_cased: bool = False, **changes: Any) -> Tokenizer:
    metadata = tiny_vocabulary.make_wordpiece(400, is_cased=is_cased)
    metadata |= {f"tokenizer.ggml.{k}": v for k, v in changes.items()}
    return Tokenizer({k: v for k, v in metadata.items() if v is not None})


@pytest.mark.parametrize("case", CASES, ids=lambda case: "cased" if case["is_cased"] else "uncased")
def test_ids_are_those_of_berts_tokenizer(case: dict[str, Any]) -> None:
    tokenizer = make(case["is_cased"])
    for row in case["rows"]:
        assert tokenizer.encode(row["text"]) == row["ids"], row["text"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "cased" if case["is_cased"] else "uncased")
def test_pairs_have_their_parts_and_types(case: dict[str, Any]) -> None:
    metadata = {"tokenizer.ggml.token_type_count": 2}
    for pair in case["pairs"]:
        text = write_pair(make(case["is_cased"]), metadata, *pair["pair"])
        assert (text.ids, text.types) == (pair["ids"], pair["types"]), pair["pair"]


def test_begin_and_end_and_text_back() -> None:
    tokenizer = make()
    ids = tokenizer.encode("Hello THE x!", add_bos=tokenizer.add_bos, add_eos=tokenizer.add_eos)
    assert (ids[0], ids[-1]) == (2, 3) and tokenizer.decode(ids) == "hello the x !"
    assert tokenizer.encode("[SEP]", special=True) == [2, 3] and len(tokenizer.encode("[SEP]")) == 5
    assert make(seperator_token_id=None, cls_token_id=None).bos_id == 2, "by their names"


def test_case_is_what_the_file_says_or_its_tokens_show() -> None:
    assert make(is_cased=True).encode("A") != make(is_cased=True).encode("a")
    said = make(is_cased=True, **{"normalizer.lowercase": True})
    assert said.encode("A\u0301") == said.encode("a")
    accents = make(**{"normalizer.strip_accents": False})
    assert accents.encode("\u00e9") == [1]


def test_a_vocabulary_without_an_unknown_token_is_refused() -> None:
    metadata = tiny_vocabulary.make_wordpiece(400)
    metadata["tokenizer.ggml.tokens"][1] = "[NOTHING]"
    del metadata["tokenizer.ggml.unknown_token_id"]
    with pytest.raises(ModelFileError, match="unknown_token_id"):
        Tokenizer(metadata)
