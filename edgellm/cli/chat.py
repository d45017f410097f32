"""`edgellm chat`: a plain conversation that streams, in a terminal or through a pipe.

Answers go to standard output, everything else to stderr. Next hop: `history.py` for what the model is shown,
`..llm` for the answer.
"""

from __future__ import annotations

import contextlib
import re
import sys
from argparse import Namespace
from importlib import import_module
from typing import TYPE_CHECKING

from ..config import SamplingParams
from ..errors import ContextError, EdgeLLMError, UnsupportedError
from . import loading
from .history import History
from .options import add_engine, add_model, add_sampling, check_text, display_name, engine_config, sampling_params
from .parser import Parser
from .terminal import is_terminal, note, report, tell_dropped, write_piece

if TYPE_CHECKING:
    from ..llm import LLM
    from ..stream import Stream

USAGE = "[MODEL] [options]"
DESCRIPTION = (
    "Talk with a model. Answers stream; Ctrl-C stops one and keeps the conversation.\n"
    "Inside: /clear forgets the conversation, /help lists the commands, /exit or Ctrl-D leaves."
)
EXAMPLES = """\
  edgellm chat                                  the default model, fetched when needed
  edgellm chat --temperature 0 --seed 1
  edgellm chat ./model.gguf --system "Answer in one sentence." --max-context 8192
  printf 'Hi\\nWhat did I say?\\n' | edgellm chat    one question a line; answers on standard output"""
HELP = """\
/clear  forget the conversation
/help   show this
/exit   leave (so does Ctrl-D)
Ctrl-C  stop the answer, keep the conversation"""
PROMPT = "> "
# Turns are forgotten early enough to leave an answer this many tokens, or a quarter of the context if that is less.
ANSWER_TOKENS = 256


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    add_model(parser)
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before the conversation")
    add_sampling(parser)
    add_engine(parser)


def execute(args: Namespace) -> int:
    """Run the command and return its exit code."""
    config, params = engine_config(args), sampling_params(args)
    system = check_text("--system", args.system) if args.system else None
    with loading.load_llm(args.model, config) as llm:
        name = display_name(args.model)
        if llm.loaded.template is None:
            way_out = f'it continues text: edgellm run {args.model} --raw "TEXT"'
            raise UnsupportedError(f"{name} has no chat template, so it cannot converse; {way_out}")
        sight = (
            f"{llm.max_context} tokens of context" if llm.window is None else f"the last {llm.window} tokens in sight"
        )
        note(f"{name}, {sight}. /help lists the commands, /exit or Ctrl-D leaves.")
        session = Session(llm, params, system, debug=args.debug)
        while (line := _read_line()) is not None and session.take(line):
            pass
    return 0


class Session:
    """One conversation. `take(line)` does what a line asks for and returns False when the user leaves."""

    def __init__(self, llm: LLM, params: SamplingParams, system: str | None, *, debug: bool = False) -> None:
        self._llm = llm
        self._params = params
        self._debug = debug
        self._system = system
        self._history = self._new_history()

    def take(self, line: str) -> bool:
        """Obey a command or answer a question; a failed turn is reported and leaves the conversation as it was."""
        line = line.strip()
        if re.fullmatch(r"/[A-Za-z?]+", line):
            return self._obey(line)
        if line:
            try:
                self._answer(check_text("the message", line))
            except EdgeLLMError as error:
                report(error, debug=self._debug)
        return True

    def _obey(self, command: str) -> bool:
        if command == "/clear":
            self._history = self._new_history()
            note("(the conversation is forgotten)")
        elif command == "/help":
            note(HELP)
        elif command != "/exit":
            note(f"(there is no {command}; /help lists the commands)")
        return command != "/exit"

    def _answer(self, question: str) -> None:
        """Answer, forgetting as many of the oldest turns as it takes; raises ContextError if none is left to forget.

        With a window nothing is forgotten here: the oldest tokens leave the model's sight one by one.
        """
        limit = self._llm.max_context
        if limit is None:
            return self._speak(question, 0)
        skip = self._history.to_skip(question, limit - min(ANSWER_TOKENS, limit // 4))
        while True:
            try:
                return self._speak(question, skip)
            except ContextError:
                # The count was an estimate: forget one more, until only the question itself is too long.
                if skip == len(self._history.turns):
                    raise
                skip += 1

    def _speak(self, question: str, skip: int) -> None:
        """Stream one answer to what is left after `skip` turns; Ctrl-C ends it, and what was said stays."""
        said: list[str] = []
        try:
            with self._llm.chat_stream(self._history.messages(question, skip=skip), self._params) as stream:
                for piece in stream:
                    if not said:
                        self._forget(skip)
                    said.append(piece)
                    write_piece(piece)
        except KeyboardInterrupt:
            self._keep_stopped(question, said)
        else:
            if not said:
                self._forget(skip)
            self._keep(question, said)
            self._tell_end(stream)

    def _keep_stopped(self, question: str, said: list[str]) -> None:
        """Keep what was said; a question without any answer goes, as templates refuse two questions in a row."""
        if said:
            self._keep(question, said)
            note("(stopped)")
        else:
            note("(stopped before the first word; your message is not kept)")

    def _keep(self, question: str, said: list[str]) -> None:
        answer = "".join(said)
        self._history.add(question, answer)
        if not answer.endswith("\n"):
            write_piece("\n")

    def _tell_end(self, stream: Stream) -> None:
        done = stream.completion
        if done is None:
            return
        if done.finish_reason == "length" and len(done.token_ids) != self._params.max_tokens:
            note(f"(the answer was cut: the context of {self._llm.max_context} tokens is full)")
        tell_dropped(done.num_dropped_tokens, self._llm.window)

    def _forget(self, number: int) -> None:
        if number:
            self._history.forget(number)
            turns = "the oldest turn is" if number == 1 else f"the {number} oldest turns are"
            note(f"(the conversation no longer fits into {self._llm.max_context} tokens: {turns} forgotten)")

    def _new_history(self) -> History:
        return History(self._system, lambda text: len(self._llm.tokenize(text)))


def _read_line() -> str | None:
    """Return the next line, or None at the end. At a terminal Ctrl-C drops the line being typed."""
    typing = is_terminal(sys.stdin)
    if typing:
        with contextlib.suppress(ImportError):  # Windows has none, and edits lines by itself
            import_module("readline")  # gives input() its line editing and history
    while True:
        try:
            return input(PROMPT if typing and is_terminal(sys.stdout) else "")
        except EOFError:
            if typing:
                note("")
            return None
        except KeyboardInterrupt:
            if not typing:
                raise
            note("\n(/exit or Ctrl-D leaves)")
