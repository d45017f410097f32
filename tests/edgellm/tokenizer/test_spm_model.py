"""The sentencepiece model made from a GGUF, and its place on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_vocabulary

from edgellm.errors import ModelFileError
from edgellm.tokenizer import Tokenizer, spm_model

METADATA = tiny_vocabulary.make_spm(800)


@pytest.fixture
def cache(isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(spm_model, "MIN_CACHED_PIECES", 1)
    return isolated_home / "tokenizers"


def encode(metadata: dict[str, Any] = METADATA) -> list[int]:
    return Tokenizer(metadata).encode("hello the end \u00e9")


def count_builds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    builds: list[int] = []
    make = spm_model.make_model

    def counted(*args: Any) -> bytes:
        builds.append(1)
        return make(*args)

    monkeypatch.setattr(spm_model, "make_model", counted)
    return builds


def test_the_package_reads_what_is_written() -> None:
    """Parse with the package's own protobuf, so that field numbers are not only right by luck."""
    from sentencepiece import SentencePieceProcessor

    types = np.array([2, 3, 5, 1, 4, 5, 2, *[6] * 256], np.int32)
    texts = [b"<unk>", b"<s>", b"b", b"a", b"", "\u4e2d".encode(), b"<other>", *(b"<0x%02X>" % b for b in range(256))]
    scores = np.arange(len(texts), dtype=np.float32) / -4
    processor = SentencePieceProcessor()
    processor.LoadFromSerializedProto(spm_model.make_model(texts, scores, types, 0))
    expected = ["<unk>", "<s>", "b", "a", "[EMPTY_4]", "\u4e2d", "<other>"]
    assert [processor.id_to_piece(i) for i in range(7)] == expected
    assert [processor.get_score(i) for i in range(7)] == scores[:7].tolist()
    assert processor.unk_id() == 0
    assert processor.is_control(1) and processor.is_unused(5) and processor.is_control(6) and processor.is_byte(7)
    assert processor.encode("a\u00e9") == [3, 7 + 0xC3, 7 + 0xA9]


def test_an_incomplete_set_of_bytes_is_left_alone() -> None:
    tokens = ["<unk>", "<0x41>", "a"]
    metadata = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [2, 6, 1]}
    metadata |= {"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [0.0, 0.0, 0.0]}  # type: ignore[dict-item]
    tokenizer = Tokenizer(metadata | {"tokenizer.ggml.add_space_prefix": False})
    assert tokenizer.encode("aA") == [2, 0]
    assert tokenizer.token_bytes(1) == b"A"


def test_a_model_is_built_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds = count_builds(monkeypatch)
    assert encode() == encode()
    assert len(builds) == 1 and len(list(cache.iterdir())) == 1


def test_another_vocabulary_has_another_file(cache: Path) -> None:
    encode()
    scores = [*METADATA["tokenizer.ggml.scores"][:-1], -5000.0]
    encode(METADATA | {"tokenizer.ggml.scores": scores})
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("damage", [b"", b"short", None])
def test_a_damaged_file_is_built_again(cache: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes | None) -> None:
    first = encode()
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes((whole[-1] ^ 1,)) if damage is None else damage)
    builds = count_builds(monkeypatch)
    assert encode() == first and len(builds) == 1
    assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_written_is_no_error(cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text("a file where the folder should be")
    assert encode() == Tokenizer(METADATA).encode("hello the end \u00e9")
    assert cache.read_text().startswith("a file")


def test_a_write_that_fails_leaves_nothing_behind(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(spm_model.os, "replace", fail)
    encode()
    assert list(cache.iterdir()) == []


def test_pieces_that_contradict_each_other_are_refused() -> None:
    tokens = list(METADATA["tokenizer.ggml.tokens"])
    tokens[-1] = tokens[-2]
    with pytest.raises(ModelFileError, match="contradict"):
        Tokenizer(METADATA | {"tokenizer.ggml.tokens": tokens})
    with pytest.raises(ModelFileError, match=r"lacks tokenizer\.ggml\.scores"):
        Tokenizer({k: v for k, v in METADATA.items() if not k.endswith("scores")})
