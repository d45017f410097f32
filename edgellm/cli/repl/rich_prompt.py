"""The prompt at a capable terminal: history, completion, several lines, long pastes.

prompt_toolkit does the work and is imported here only, when a terminal is there. Next hop: `completions.py`, `recall.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.styles import Style

from ..terminal import note, wants_colour
from .completions import complete
from .multiline import is_open
from .pasted import Pasted
from .plain_prompt import CONTINUED, PROMPT
from .recall import Recall

PLACEHOLDER = "Ask something (/help lists the commands)"
STYLE = Style.from_dict(
    {"bottom-toolbar": "noreverse #888888", "placeholder": "#888888", "completion-menu": "noreverse"}
)


class RichPrompt:
    """Asks at a terminal. status: what stands below the prompt. recall: None keeps nothing between sessions."""

    offers = True

    def __init__(self, status: Callable[[], str], keeps: Callable[[], bool], recall: Recall) -> None:
        self._status = status
        self._keeps = keeps
        self._recall = recall
        self._pasted = Pasted()
        self._may_leave = False  # the next Ctrl-C does
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=CONTINUED,
            history=InMemoryHistory(recall.texts),
            completer=_Commands(),
            complete_while_typing=Condition(lambda: self._session.default_buffer.text.startswith("/")),
            key_bindings=self._make_keys(),
            bottom_toolbar=lambda: self._status(),
            placeholder=[("class:placeholder", PLACEHOLDER)],
            style=STYLE if wants_colour(sys.stdout) else None,
            include_default_pygments_style=False,
            enable_suspend=True,
            reserve_space_for_menu=4,
        )

    def read(self, offer: str = "") -> str | None:
        """Return what the user wrote, or None after Ctrl-D, or Ctrl-C twice, on an empty prompt."""
        self._may_leave = False
        try:
            text = self._ask(self._pasted.fold_offer(offer))
        except EOFError:
            return None
        text = self._pasted.unfold(text)
        if self._keeps():
            self._recall.add(text)
        return text

    def _ask(self, offer: str) -> str:
        while True:
            try:
                return self._session.prompt(default=offer)
            except KeyboardInterrupt:  # pressed while the terminal did not hand keys over one by one
                if self._may_leave:
                    raise EOFError from None
                offer = ""

    def _make_keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
                buffer.complete_state = None  # the choice is taken; the next Enter sends it
            elif is_open(buffer.text):
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("<sigint>")  # what Ctrl-C is while a note is being printed
        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            if self._may_leave and not event.current_buffer.text:
                event.app.exit(exception=EOFError)
                return
            self._may_leave = not event.current_buffer.text
            event.current_buffer.reset()
            if self._may_leave:
                run_in_terminal(lambda: note("(Ctrl-C again leaves; so do Ctrl-D and /exit)"))

        @keys.add(Keys.BracketedPaste)
        def _(event: KeyPressEvent) -> None:
            text = event.data.replace("\r\n", "\n").replace("\r", "\n")
            event.current_buffer.insert_text(self._pasted.fold(text))

        return keys


class _Commands(Completer):
    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        start, found = complete(document.text_before_cursor)
        for word, meaning in found:
            yield Completion(word, start_position=-start, display_meta=meaning)


def make_rich_prompt(status: Callable[[], str], keeps: Callable[[], bool], recall: Recall) -> Any:
    """Return the prompt, or None where the terminal turns out not to be one that prompt_toolkit can use."""
    try:
        return RichPrompt(status, keeps, recall)
    except Exception as error:  # Windows without a console (mintty): its error exists on Windows only
        if type(error).__name__ != "NoConsoleScreenBufferError":
            raise
        return None
