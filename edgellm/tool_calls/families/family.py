"""What a family of models has to say about its calls: how they begin, how they are read, how they are written.

The one interface; a new family is a new file beside this one and a line in `__init__.py`. Next hop: `hermes.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..calls import Calls
from ..reader import Reader, Steps

MAX_CALLS = 16


class Family(ABC):
    """One way to write calls. Stateless: all that changes lives in the reader and in the calls.

    name: what a person picks it by. marks: texts that begin a call wherever they stand. starts: texts that begin one only
    at the beginning of the answer. controls: texts which the family must see even where they are control tokens.
    id_prefix: what a call's id begins with. max_calls: calls an answer may have.
    head, tail: around all calls of an answer; join: between two.
    """

    name: str
    marks: tuple[str, ...]
    starts: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    id_prefix: str = "call_"
    max_calls: int = MAX_CALLS
    head: str = ""
    tail: str = ""
    join: str = "\n"

    @abstractmethod
    def read(self, reader: Reader, calls: Calls) -> Steps[None]:
        """Read from a mark to where the calls end. Raises MalformedError where it is no call."""

    @abstractmethod
    def around(self, name: str) -> tuple[str, str]:
        """Return what this family writes before and after the JSON of a call's arguments."""
