"""Take an answer apart while it comes: text for the user, reasoning, calls of tools.

What comes out does not depend on how the text was cut into pieces, only when it comes out. Knows no tokens and no model.
Next hop: `families`, which read what begins with one of their marks.

The rules. Reasoning stands at the beginning, or was opened by the prompt, and ends at its closing mark or with the answer;
white space at its edges and after it belongs to nobody. A call is what a family can read to its end and what names an offered
function; everything else stays text, marks included. White space beside calls belongs to nobody, unless it parts text.
"""

from __future__ import annotations

from collections.abc import Sequence

from .calls import Calls, Delta, EnoughError
from .families import Family
from .reader import MalformedError, Reader, Steps
from .reasoning import ReasoningMarks

_WAIT = False
_GO_ON = True


class Splitter:
    """Splits one answer.

    marks: of reasoning, None if it is not to be looked for. is_opened: the prompt ends inside reasoning.
    family, calls: how calls are written and where they go, None if there are none to expect.
    is_full: as many calls as `calls` takes were made, the answer is over. content, reasoning: what came out so far.
    """

    def __init__(
        self,
        marks: ReasoningMarks | None = None,
        is_opened: bool = False,
        family: Family | None = None,
        calls: Calls | None = None,
    ) -> None:
        self.is_full = False
        self._marks, self._is_opened = marks, is_opened
        self._family, self._calls = family, calls
        self._step = self._begin if marks is not None else self._read_start
        self._text = ""  # what is not decided yet
        self._space = ""  # white space of which is not known yet whether it parts anything
        self._is_ended = False
        self._reader = Reader()
        self._steps: Steps[None] | None = None
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._deltas: list[Delta] = []

    @property
    def content(self) -> str:
        """The text for the user so far."""
        return "".join(self._content)

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return "".join(self._reasoning)

    def push(self, text: str) -> list[Delta]:
        """Take a piece of the answer. -> what became certain, maybe nothing."""
        self._text += text
        while (self._text or self._is_ended) and not self.is_full and self._step() is _GO_ON:
            pass
        deltas, self._deltas = self._deltas, []
        return deltas

    def finish(self) -> list[Delta]:
        """Take the end of the answer. -> all that was held back."""
        self._is_ended = True
        return self.push("")

    # ---- each step takes text from self._text, or waits for more of it ----
    def _begin(self) -> bool:
        assert self._marks is not None
        text = self._text.lstrip()
        opening = self._marks.open
        if not self._is_ended and len(text) < len(opening) and opening.startswith(text):
            return _WAIT
        if text.startswith(opening):
            self._text, self._step = text[len(opening) :], self._read_reasoning
        else:
            self._step = self._read_reasoning if self._is_opened else self._read_start
        return _GO_ON

    def _read_reasoning(self) -> bool:
        assert self._marks is not None
        if not self._reasoning:
            self._text = self._text.lstrip()
        place = self._text.find(self._marks.close)
        if place >= 0:
            self._put_reasoning(self._text[:place].rstrip())
            self._text, self._step = self._text[place + len(self._marks.close) :], self._skip_space
            return _GO_ON
        keep = 0 if self._is_ended else _count_undecided(self._text, (self._marks.close,))
        sure = self._text[: len(self._text) - keep].rstrip()
        self._put_reasoning(sure)
        self._text = "" if self._is_ended else self._text[len(sure) :]
        return _WAIT

    def _skip_space(self) -> bool:
        self._text = self._text.lstrip()
        if self._text or self._is_ended:
            self._step = self._read_start
            return _GO_ON
        return _WAIT

    def _read_start(self) -> bool:
        """Begin a call if the answer begins as one."""
        starts = self._family.starts if self._family is not None else ()
        text = self._text.lstrip()
        if not self._is_ended and any(start != text and start.startswith(text) for start in starts):
            return _WAIT
        self._step = self._read_content
        if text.startswith(starts):
            self._space = self._text[: len(self._text) - len(text)]
            self._open_call(len(self._space))
        return _GO_ON

    def _read_content(self) -> bool:
        family = self._family
        if family is None:
            self._put_content(self._text)
            self._text = ""
            return _WAIT
        found = [(place, mark) for mark in family.marks if (place := self._text.find(mark)) >= 0]
        if found:
            place = min(found)[0]
            self._put_spaced(self._text[:place])
            self._open_call(place)
            return _GO_ON
        keep = 0 if self._is_ended else _count_undecided(self._text, family.marks)
        self._put_spaced(self._text[: len(self._text) - keep])
        self._text = self._text[len(self._text) - keep :]
        if self._is_ended and self._space and not (self._calls and self._calls.finished):
            self._put_content(self._space)
            self._space = ""
        return _WAIT

    def _open_call(self, place: int) -> None:
        assert self._family is not None and self._calls is not None
        self._reader = Reader()
        self._steps = self._family.read(self._reader, self._calls)
        self._text, self._step = self._text[place:], self._read_call

    def _read_call(self) -> bool:
        assert self._calls is not None and self._steps is not None
        self._reader.text += self._text
        self._reader.is_ended = self._is_ended
        self._text = ""
        rest = None
        try:
            next(self._steps)
        except StopIteration:
            rest = self._reader.text[self._reader.at :]
        except MalformedError:
            rest = self._reader.text[self._reader.settled :]
        except EnoughError:
            self.is_full = True
        news = self._calls.take_news()
        if news:
            self._deltas.append(Delta(tool_calls=news))
        if rest is None:
            return _WAIT
        self._leave_call(rest)
        return _GO_ON

    def _leave_call(self, rest: str) -> None:
        """Go on with the text after a call, or with the text of what turned out to be none."""
        assert self._calls is not None and self._family is not None
        self._calls.drop()
        self._step = self._read_content
        self._text = rest
        if rest and len(rest) == len(self._reader.text):
            # Nothing of it was a call: let its first mark go as text, and look on behind it.
            mark = max((m for m in self._family.marks if rest.startswith(m)), key=len, default=rest[0])
            self._put_spaced(mark)
            self._text = rest[len(mark) :]

    # ---- what comes out ----
    def _put_spaced(self, text: str) -> None:
        """Put text, but hold the white space at its end until more text follows."""
        text, self._space = self._space + text, ""
        solid = text.rstrip()
        self._space = text[len(solid) :]
        if not self._content and self._calls is not None and self._calls.finished:
            solid = solid.lstrip()
        self._put_content(solid)

    def _put_content(self, text: str) -> None:
        if text:
            self._content.append(text)
            self._deltas.append(Delta(content=text))

    def _put_reasoning(self, text: str) -> None:
        if text:
            self._reasoning.append(text)
            self._deltas.append(Delta(reasoning=text))


def _count_undecided(text: str, marks: Sequence[str]) -> int:
    """Return the length of the longest end of the text that begins a mark."""
    for length in range(min(len(text), max(map(len, marks), default=1) - 1), 0, -1):
        if any(mark.startswith(text[-length:]) for mark in marks):
            return length
    return 0
