"""What the metadata says about tokens: types, ids, ends of generation (case O04)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgellm.errors import ModelFileError
from edgellm.tokenizer import vocab


def find_ends(texts: list[str], types: list[int], **metadata: int) -> tuple[frozenset[int], list[int]]:
    array = np.array(types, np.int32)
    table = {text: i for i, text in enumerate(texts)}
    ends = vocab.find_end_ids({f"tokenizer.ggml.{k}": v for k, v in metadata.items()}, array, table.get)
    return ends, array.tolist()


def test_the_end_of_turn_counts_though_the_metadata_names_another_eos() -> None:
    ends, _ = find_ends(["a", "<|end_of_text|>", "<|eot_id|>"], [1, 3, 3], eos_token_id=1)
    assert ends == {1, 2}


def test_declared_ends_count_whatever_their_names() -> None:
    assert find_ends(["a", "b", "c"], [1, 1, 1], eos_token_id=0, eot_token_id=1, eom_token_id=2)[0] == {0, 1, 2}
    assert find_ends(["a"], [1], eos_token_id=7)[0] == frozenset()


def test_a_turn_marker_of_the_wrong_type_becomes_a_control_token() -> None:
    assert find_ends(["<|im_end|>"], [1]) == ({0}, [3])


def test_names_that_may_be_text_count_only_as_control_tokens() -> None:
    assert find_ends(["</s>", "[EOS]", "[PAD]"], [1, 1, 1]) == (frozenset(), [1, 1, 1])
    assert find_ends(["</s>", "[EOS]"], [4, 4]) == ({1}, [4, 3])  # a user-defined </s> is HTML
    assert find_ends(["</s>", "[PAD]"], [3, 3])[0] == {0, 1}


def test_end_of_message_is_not_the_end_of_the_turn_in_harmony() -> None:
    assert find_ends(["<|end|>", "<|return|>", "<|call|>"], [3, 3, 3])[0] == {1, 2}
    assert find_ends(["<|end|>"], [3])[0] == {0}


def test_one_token_of_each_fill_in_the_middle_kind_ends_generation() -> None:
    assert find_ends(["<|fim_pad|>", "<|repo_name|>", "<reponame>", "<|file_sep|>"], [3, 3, 3, 3])[0] == {0, 1, 3}


@pytest.mark.parametrize("value", [None, "x", 3, [], np.zeros(0)])
def test_no_tokens(value: Any) -> None:
    with pytest.raises(ModelFileError, match=r"tokenizer\.ggml\.tokens"):
        vocab.count_tokens({"tokenizer.ggml.tokens": value})


def test_arrays_must_have_a_value_for_each_token() -> None:
    with pytest.raises(ModelFileError, match=r"tokenizer\.ggml\.token_type must hold 3 numbers.*holds 2"):
        vocab.load_types({"tokenizer.ggml.token_type": np.ones(2, np.int32)}, 3)
    assert vocab.load_types({}, 3).tolist() == [1, 1, 1]


def test_texts() -> None:
    assert vocab.decode_texts([b"a", b"", "\U0010ffff".encode()], "k") == ["a", "[EMPTY_1]", "\U0010ffff"]
    with pytest.raises(ModelFileError, match=r"k holds a string that is not UTF-8"):
        vocab.decode_texts([b"a", b"\xff"], "k")
    with pytest.raises(ModelFileError, match="lacks k"):
        vocab.raw_texts({"k": 3}, "k")


def test_byte_tokens() -> None:
    assert [vocab.parse_byte(t) for t in ("<0x0A>", "<0xfF>", "x", "<0xZZ>")] == [b"\n", b"\xff", b"", b""]


def test_ids_outside_the_vocabulary_are_ignored() -> None:
    assert vocab.get_id({"tokenizer.ggml.bos_token_id": 9}, "bos_token_id", 5, 1) == 1
    assert vocab.get_id({"tokenizer.ggml.bos_token_id": -1}, "bos_token_id", 5) is None
    assert vocab.get_id({"tokenizer.ggml.bos_token_id": 4}, "bos_token_id", 5) == 4
