"""The corpus of earlier texts: what is found, what is kept, what a damaged file does."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from edgellm.errors import ResourceError
from edgellm.speculative import corpus as corpus_file
from edgellm.speculative.corpus import Corpus, CorpusProposer


def test_what_followed_in_an_earlier_session(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "corpus"
    first = Corpus(path, 1000)
    proposer = CorpusProposer(first)
    assert proposer.propose([1, 2, 3, 4, 5, 6, 7, 8], 4).token_ids == []
    proposer.close()
    proposer.close()
    first.save()
    again = CorpusProposer(Corpus(path, 1000))
    assert again.propose([9, 9, 2, 3, 4, 5], 2).token_ids == [6, 7]
    assert again.propose([9, 9, 2, 3, 4, 5], 20).token_ids == [6, 7, 8], "a text's end is no place to go on from"
    assert again.propose([3, 4, 5], 2).token_ids == []
    assert again.propose([2, 3, 4, 5], 0).token_ids == []


def test_the_longest_match_then_the_latest(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path / "corpus", 1000)
    corpus.add([0, 1, 2, 3, 4, 50])
    corpus.add([7, 1, 2, 3, 4, 60])
    corpus.add([8, 1, 2, 3, 4, 70])
    assert corpus.after(corpus.find([0, 1, 2, 3, 4]) or 0, 1) == [50]
    assert corpus.after(corpus.find([9, 1, 2, 3, 4]) or 0, 1) == [70]


def test_two_programs_add_to_one_file_and_it_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_file, "MAX_TOKENS", 64)
    path = tmp_path / "corpus"
    one, two = Corpus(path, 1000), Corpus(path, 1000)
    one.add(list(range(100, 110)))
    two.add(list(range(200, 210)))
    one.save()
    two.save()
    both = Corpus(path, 1000)
    assert both.find(list(range(100, 105))) is not None and both.find(list(range(200, 205))) is not None
    for start in range(300, 400, 10):
        both.add(list(range(start, start + 10)))
    both.save()
    assert path.stat().st_size <= 64 * 4 + 64
    assert Corpus(path, 1000).find(list(range(100, 105))) is None, "the oldest goes"
    assert len(both._ids) == 64


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path / "corpus", 1000)
    corpus.add(list(range(10)))
    corpus.save()
    assert stat.S_IMODE((tmp_path / "corpus").stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", ["cut", "flip", "text", "huge", "foreign"])
def test_a_damaged_file_begins_anew(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "corpus"
    corpus = Corpus(path, 1000)
    corpus.add(list(range(10)))
    corpus.save()
    data = bytearray(path.read_bytes())
    data[-1] ^= damage == "flip"
    path.write_bytes(
        {"cut": data[:-3], "flip": data, "text": b"hello", "foreign": data, "huge": bytes(16 << 20)}[damage]
    )
    with pytest.warns(RuntimeWarning, match="is damaged and begins anew"):
        corpus = Corpus(path, 9 if damage == "foreign" else 1000)  # its ids are up to 9
    assert corpus.find(list(range(5))) is None


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    corpus = Corpus(tmp_path / "new" / "corpus", 1000)
    corpus.path = tmp_path / "file" / "corpus"
    corpus.add(list(range(10)))
    with pytest.raises(ResourceError, match="cannot be written to"):
        corpus.save()


def test_keys_of_all_places() -> None:
    ids = np.array([1, 2, 3, 4, 5, 1, 2, 3, 4], np.int32)
    keys = corpus_file._keys(ids)
    assert len(keys) == 6 and keys[0] == keys[5] and len(set(keys.tolist())) == 5
    assert len(corpus_file._keys(ids[:3])) == 0
