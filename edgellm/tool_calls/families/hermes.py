"""Hermes: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, one pair of tags a call.

Nous Hermes 2 Pro and 3, Qwen 2.5, QwQ, Qwen 3, Granite 4, Bielik 3, Reka, and every model that is told of its tools in words
(`../describe.py`). Source: the models' chat templates. Other models put the same JSON, or an array of it, after a mark of
their own: those are instances here.
"""

from __future__ import annotations

from ..calls import Calls
from ..reader import Reader, Steps
from .family import Family
from .json_call import read_calls


class Marked(Family):
    """JSON after a mark. closer: what may follow it. is_list: the model writes an array; both are read."""

    def __init__(self, name: str, mark: str, closer: str, is_list: bool, words: tuple[str, str]) -> None:
        self.name = name
        self.marks = (mark,)
        self.controls = (mark, closer) if closer else (mark,)
        self._mark, self._closer, self._is_list, self._words = mark, closer, is_list, words
        self.head, self.tail, self.join = (f"{mark}[", f"]{closer}", ", ") if is_list else ("", "", "\n")

    def read(self, reader: Reader, calls: Calls) -> Steps[None]:
        """Read the mark, the JSON and the closer, which models forget."""
        yield from reader.need(self._mark)
        yield from reader.skip_space()
        yield from self._read_json(reader, calls)
        yield from reader.take_last(self._closer)

    def _read_json(self, reader: Reader, calls: Calls) -> Steps[None]:
        yield from read_calls(reader, calls)

    def around(self, name: str) -> tuple[str, str]:
        """JSON as the templates write it."""
        before = f'{{"{self._words[0]}": "{name}", "{self._words[1]}": '
        return (before, "}") if self._is_list else (f"{self._mark}\n{before}", f"}}\n{self._closer}".rstrip())


HERMES = Marked("hermes", "<tool_call>", "</tool_call>", False, ("name", "arguments"))
GRANITE = Marked("granite", "<|tool_call|>", "", True, ("name", "arguments"))
NEMOTRON = Marked("nemotron", "<TOOLCALL>", "</TOOLCALL>", True, ("name", "arguments"))
TOOL_CALLS_TAG = Marked("tool-calls-tag", "<tool_calls>", "</tool_calls>", True, ("name", "arguments"))
GIGACHAT = Marked("gigachat", "<|function_call|>", "", False, ("name", "arguments"))
COMMAND_R = Marked("command-r", "<|START_ACTION|>", "<|END_ACTION|>", True, ("tool_name", "parameters"))
