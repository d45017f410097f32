"""priority and client among the options of LLM's calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_models import write_tiny

from edgellm import LLM
from edgellm.errors import OptionError
from edgellm.request import Standing, split_standing


def test_where_a_request_stands() -> None:
    assert split_standing({"seed": 1}) == (Standing(0, ""), {"seed": 1})
    assert split_standing({"priority": -5, "client": "me", "seed": 1}) == (Standing(-5, "me"), {"seed": 1})


@pytest.mark.parametrize("options", [{"priority": 1.0}, {"priority": True}, {"priority": 2**31}, {"client": 5}])
def test_what_is_none(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        split_standing(options)


def test_the_urgent_one_is_answered_before_those_that_came_earlier(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", formats="Q8_0", tied=False)
    with LLM.load(path, threads=1, max_context=128, max_sequences=1) as llm:
        options: dict[str, Any] = {"max_tokens": 4, "temperature": 0, "ignore_eos": True}
        first = llm.stream([5, 6, 7], **options | {"max_tokens": 60})
        next(first)
        late = [llm.stream([10 + i], **options) for i in range(3)]
        urgent = llm.stream([20], priority=-1, **options)
        done = [stream.finish() for stream in (first, urgent, *late)]
    starts = [stream._sequence.started_s or 0.0 for stream in (first, urgent, *late)]
    assert starts == sorted(starts), "it came last"
    assert done[1].token_ids and all(len(one.token_ids) == 4 for one in done[1:])
