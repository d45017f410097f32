"""Tokens for the parser: made once a tokenizer, gone with it, of both kinds of vocabulary, and never at start-up."""

from __future__ import annotations

import gc
import subprocess
import sys
import warnings
import weakref

import numpy as np
import pytest
from tiny_vocabulary import make_bpe, make_spm

from edgellm.config import SamplingParams
from edgellm.errors import OptionError, UnsupportedError
from edgellm.structured import compiling, make_constraint
from edgellm.structured import vocabulary as module
from edgellm.structured.vocabulary import vocabulary_of
from edgellm.tokenizer import Tokenizer


def test_a_vocabulary_is_made_once_and_goes_with_its_tokenizer() -> None:
    tokenizer = Tokenizer(make_bpe(400))
    made = vocabulary_of(tokenizer, tokenizer.eog_ids)
    assert vocabulary_of(tokenizer, list(tokenizer.eog_ids)) is made
    assert vocabulary_of(tokenizer, [2]) is not made
    make_constraint(SamplingParams(json=True), tokenizer, tokenizer.eog_ids).mask(np.zeros(400, np.float32))
    gone = weakref.ref(tokenizer)
    del tokenizer, made
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what other tests have left open is none of this one's affair
        gc.collect()
    assert gone() is None


@pytest.mark.parametrize("prefix", [False, True])
def test_spm_with_and_without_a_space_before_the_text(prefix: bool) -> None:
    tokenizer = Tokenizer({**make_spm(900), "tokenizer.ggml.add_space_prefix": prefix})
    constraint = make_constraint(SamplingParams(choices=("the hello é",)), tokenizer, tokenizer.eog_ids)
    text = b""
    for _ in range(30):
        if constraint.is_complete:
            break
        logits = np.arange(900, dtype=np.float32)
        constraint.mask(logits)
        forced = constraint.forced()
        assert all(logits[i] > -np.inf for i in forced[:1])
        for token_id in forced or [int(np.argmax(logits))]:
            constraint.accept(token_id)
            text += tokenizer.token_bytes(token_id)
    assert text.decode() == "the hello é"


def test_every_end_is_allowed_and_one_must_exist() -> None:
    tokenizer = Tokenizer(make_spm(900))
    assert len(tokenizer.eog_ids) > 1
    constraint = make_constraint(SamplingParams(regex="a*"), tokenizer, [*tokenizer.eog_ids, 5000])
    logits = np.zeros(900, np.float32)
    constraint.mask(logits)
    assert (logits[sorted(tokenizer.eog_ids)] == 0).all()
    with pytest.raises(UnsupportedError, match="ends an answer"):
        make_constraint(SamplingParams(regex="a*"), tokenizer, [])


def test_grammars_are_kept_a_few_at_a_time() -> None:
    tokenizer = Tokenizer(make_bpe(400))
    for i in range(30):
        make_constraint(SamplingParams(regex=f"a{i}"), tokenizer, tokenizer.eog_ids)
    assert len(vocabulary_of(tokenizer, tokenizer.eog_ids)._grammars) == module._KEPT_GRAMMARS


def test_a_grammar_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "MAX_COMPILE_S", 0)
    tokenizer = Tokenizer(make_bpe(400))
    params = SamplingParams(schema={"type": "integer", "multipleOf": 9973})
    with pytest.raises(OptionError, match="longer than 0 seconds"):
        make_constraint(params, tokenizer, tokenizer.eog_ids)


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    code = (
        "import sys, edgellm.llm, edgellm.structured\n"
        "edgellm.SamplingParams(json=True, max_tokens=3)\n"
        "print(sorted({'llguidance', 'pydantic', 'numba', 'jsonschema'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_control_ids_are_those_of_is_control() -> None:
    tokenizer = Tokenizer(make_spm(900))
    assert tokenizer.control_ids == [i for i in range(900) if tokenizer.is_control(i)]
    assert len(tokenizer.control_ids) > 5
