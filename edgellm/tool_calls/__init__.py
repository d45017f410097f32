"""Tools and reasoning in conversations: requests checked, answers taken apart and, where asked, kept in form.

`turn.py` ties it together and is what `llm.py` uses; `splitter.py` takes answers apart; `families` knows how models write
calls. Knows text, marks and schemas; no network, no cache. Next hop: `turn.py`.
"""

from __future__ import annotations

from .calls import CallDelta, Delta, ToolCall
from .request import ToolLike, check_request
from .turn import ChatFormat, Turn

__all__ = ["CallDelta", "ChatFormat", "Delta", "ToolCall", "ToolLike", "Turn", "check_request"]
