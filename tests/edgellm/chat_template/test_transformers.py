"""Our renderings are those of Transformers (O06): own templates in tests/data, answers written by compare_templates.py.

`python tools/compare_templates.py` compares llama.cpp's whole collection, which is too large to keep here.
"""

from __future__ import annotations

import json
from pathlib import Path

import compare_templates
import pytest

DATA = Path(__file__).resolve().parents[2] / "data"
ANSWERS = json.loads((DATA / "template_renderings.json").read_text("utf-8"))["answers"]
REQUESTS = list(compare_templates.make_requests(DATA / "chat_templates"))
TOKENIZER = compare_templates.make_tokenizer()


def test_there_is_an_answer_to_each_request() -> None:
    assert len(ANSWERS) == len(REQUESTS) > 100


@pytest.mark.parametrize("name", sorted({name for name, _, _ in REQUESTS}))
def test_the_text_or_the_reason_is_that_of_transformers(name: str) -> None:
    for (template, case, request), answer in zip(REQUESTS, ANSWERS, strict=True):
        if template == name:
            result = compare_templates.compare(name, case, request, answer, TOKENIZER)
            assert result.verdict != "DIFFERENT", (case, result.ours, result.theirs)


def test_the_comparison_sees_a_difference() -> None:
    name, case, request = REQUESTS[0]
    for answer in ({"text": "other"}, {"error": "other"}):
        assert compare_templates.compare(name, case, request, answer, TOKENIZER).verdict == "DIFFERENT"
