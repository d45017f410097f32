"""LFM 2 and 2.5: `<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>`; JSON between the marks is read too.

Source: Liquid AI's model cards and chat templates.
"""

from __future__ import annotations

from ..calls import Calls
from ..reader import Reader, Steps
from .hermes import Marked
from .pythonic import read_python


class Lfm2(Marked):
    """Python's words after a mark."""

    def read(self, reader: Reader, calls: Calls) -> Steps[None]:
        """Read the mark and what follows it."""
        yield from reader.need(self._mark)
        yield from reader.skip_space()
        start = reader.at
        yield from reader.take("[")
        yield from reader.skip_space()
        is_json = (yield from reader.peek()) == "{"
        reader.at = start
        if is_json:
            yield from self._read_json(reader, calls)
            yield from reader.take_last(self._closer)
        else:
            yield from read_python(reader, calls, self._closer)


LFM2 = Lfm2("lfm2", "<|tool_call_start|>", "<|tool_call_end|>", True, ("name", "arguments"))
