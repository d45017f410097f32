"""Structured output through LLM on a tiny random model: instances, cut answers, forced tokens, errors before any work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal

import pytest
from pydantic import BaseModel, Field, field_validator
from tiny_models import write_tiny

from edgellm import LLM, AnswerError, Completion
from edgellm.errors import OptionError, UnsupportedError
from edgellm.structured.constraint import GrammarConstraint


class Answer(BaseModel):
    kind: Literal["circle", "square"]
    size: int = Field(ge=0, le=999)
    names: list[Literal["a", "b"]] = Field(max_length=2)


class Picky(BaseModel):
    kind: Literal["circle"]

    @field_validator("kind")
    @classmethod
    def refuse(cls, value: str) -> str:
        raise ValueError("circles are not wanted")


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    path = write_tiny(
        tmp_path_factory.mktemp("tiny") / "tiny.gguf", formats="Q8_0", vocab=128
    )  # tokens of one character
    with LLM.load(path, threads=2) as llm:
        yield llm


def count_passes(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with every forward pass."""
    passes: list[int] = []
    forward = llm.loaded.engine.runner.forward
    monkeypatch.setattr(llm.loaded.engine.runner, "forward", lambda batch: passes.append(1) or forward(batch))
    return passes


@pytest.mark.parametrize("seed", range(3))
def test_a_model_class_gives_its_instance(llm: LLM, seed: int) -> None:
    found = llm.generate("hello", schema=Answer, seed=seed, temperature=1.0, max_tokens=400)
    assert isinstance(found, Answer)
    assert llm.chat([{"role": "user", "content": "hi"}], schema=Answer, seed=seed, max_tokens=400).size >= 0
    stream = llm.stream("hello", schema=Answer, seed=seed, temperature=1.0, max_tokens=400)
    text = "".join(stream)
    assert isinstance(stream.completion, Completion) and Answer.model_validate_json(text) == found
    closed = {**Answer.model_json_schema(), "additionalProperties": False}
    same = llm.generate("hello", schema=closed, seed=seed, temperature=1.0, max_tokens=400)
    assert isinstance(same, Completion) and same.text == text


def test_an_answer_that_was_cut_is_an_error_that_carries_the_text(llm: LLM) -> None:
    with pytest.raises(AnswerError, match="no Answer: it was cut after 9 tokens; raise max_tokens") as caught:
        llm.generate("hello", schema=Answer, max_tokens=9, temperature=0.0)
    assert (
        caught.value.text
        == llm.generate("hello", schema=Answer.model_json_schema(), max_tokens=9, temperature=0.0).text
    )
    stopped = pytest.raises(AnswerError, match="no Answer")
    with stopped:
        llm.generate("hello", schema=Answer, max_tokens=400, stop=['"kind'])


def test_the_classs_own_validators_have_the_last_word(llm: LLM) -> None:
    with pytest.raises(AnswerError, match="circles are not wanted") as caught:
        llm.generate("hello", schema=Picky, max_tokens=400)
    assert json.loads(caught.value.text) == {"kind": "circle"} and "\n" not in str(caught.value)


def test_forced_tokens_take_no_pass_each_and_change_no_text(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    llm.loaded.engine.use(None)  # guesses would take less passes too
    form = r'\{"a long name nobody chooses": [0-9]{1,3}, "another one": (true|false)\}'
    passes = count_passes(llm, monkeypatch)
    prompts = ["hello", "the", "1", "?"]
    quick = [llm.generate(prompt, regex=form, temperature=0.0) for prompt in prompts]
    num_quick = len(passes)
    monkeypatch.setattr(GrammarConstraint, "forced", lambda self: [])
    slow = [llm.generate(prompt, regex=form, temperature=0.0) for prompt in prompts]
    assert [done.text for done in quick] == [done.text for done in slow]
    num_tokens = sum(len(done.token_ids) for done in quick)
    assert len(passes) - num_quick >= num_tokens and num_quick * 3 < num_tokens
    assert all(done.finish_reason == "stop" and json.loads(done.text) for done in quick)


def test_o23_json_that_was_cut_says_so(llm: LLM) -> None:
    done = llm.generate("hello", json=True, max_tokens=3, temperature=0.0)
    assert done.finish_reason == "length" and len(done.token_ids) == 3


@pytest.mark.parametrize("n", range(3))
def test_a_bad_form_is_refused_before_any_work(llm: LLM, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    passes = count_passes(llm, monkeypatch)
    bad = [{"schema": {"not": {}}}, {"regex": "(?=a)"}, {"schema": {"$ref": "#"}}][n]
    with pytest.raises((OptionError, UnsupportedError)):
        llm.stream("hello", **bad)
    assert not passes and not llm.loaded.engine.has_work
    assert llm.generate("hello", choices=["yes", "no"]).text in ("yes", "no")
