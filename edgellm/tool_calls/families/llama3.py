"""Llama 3.1 to 3.3: the whole answer is {"name": ..., "parameters": {...}}, sometimes after `<|python_tag|>`.

One call an answer: the templates refuse more. Code for the model's own interpreter, which also follows `<|python_tag|>`,
is no call of a function and stays content. Source: Meta's prompt format (llama-models, prompt_format.md) and templates.
"""

from __future__ import annotations

from ..calls import Calls
from ..reader import Reader, Steps
from .family import Family
from .json_call import read_call

TAG = "<|python_tag|>"


class Llama3(Family):
    """Bare JSON at the beginning of an answer, or JSON after the tag."""

    name = "llama3"
    marks = (TAG,)
    starts = ("{",)
    controls = (TAG,)
    max_calls = 1

    def read(self, reader: Reader, calls: Calls) -> Steps[None]:
        """Read one object, with or without the tag."""
        yield from reader.take(TAG)
        yield from reader.skip_space()
        yield from read_call(reader, calls)

    def around(self, name: str) -> tuple[str, str]:
        """As the templates write it, without the tag."""
        return f'{{"name": "{name}", "parameters": ', "}"


LLAMA3 = Llama3()
