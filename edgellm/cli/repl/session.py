"""One conversation: takes a line, answers or obeys, and goes on whatever happens.

Answers go to the screen, everything else to stderr. Next hop: `commands.py` for lines that begin with a slash,
`conversation.py` for what the model is shown, `answering.py` for how an answer is waited for, `..llm` for the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...config import SamplingParams
from ...errors import ContextError, EdgeLLMError
from ..options import check_text
from ..terminal import note, report, tell_dropped
from . import commands, saved, showing
from .answering import Watch, catching_interrupts, listen
from .conversation import Conversation, Turn
from .multiline import unwrap
from .screen import Screen, View

if TYPE_CHECKING:
    from ...completion import Completion
    from ...llm import LLM
    from ...stream import Stream

# Turns are forgotten early enough to leave an answer this many tokens, or a quarter of the context if that is less.
ANSWER_TOKENS = 256


class Session:
    """One conversation. `take(line)` does what a line asks for and returns False when the user leaves.

    params: how answers are made; start_params as the command line has it. offer: what the next prompt begins with.
    template_args: names for the model's chat template. last: the last answer. offers: the prompt can show a text to be
    edited. keeps_last: every answer is kept on disk.
    """

    def __init__(
        self,
        llm: LLM,
        name: str,
        params: SamplingParams,
        system: str | None,
        make_screen: Callable[[], Screen],
        view: View,
        *,
        offers: bool = False,
        keeps_last: bool = False,
        debug: bool = False,
    ) -> None:
        self.llm = llm
        self.name = name
        self.params = self.start_params = params
        self.view = view
        self.offer = ""
        self.template_args: dict[str, Any] = {}
        self.last: Completion | None = None
        self.has_ended = False
        self._make_screen = make_screen
        self._offers = offers
        self._keeps_last = keeps_last
        self._debug = debug
        self.conversation = self._make_conversation(system)

    @cached_property
    def _screen(self) -> Screen:
        """Made when the first answer begins: what draws takes a while to import."""
        return self._make_screen()

    def take(self, line: str) -> bool:
        """Obey a command or answer a question; a failed turn is reported and leaves the conversation as it was."""
        try:
            call = commands.parse(line)
            if call is not None:
                self._obey(call)
            elif text := unwrap(line.strip()).strip():
                self.ask(check_text("the message", text))
        except EdgeLLMError as error:
            report(error, debug=self._debug)
        return not self.has_ended

    def ask(self, question: str) -> bool:
        """Answer, forgetting as many of the oldest turns as it takes. -> whether there is a new turn.

        Raises ContextError if none is left to forget. With a window nothing is forgotten here: the oldest tokens leave the
        model's sight one by one.
        """
        limit, skip = self.llm.max_context, 0
        if limit is not None:
            skip = self.conversation.to_skip(question, limit - min(ANSWER_TOKENS, limit // 4))
        with catching_interrupts() as was_interrupted:
            stream, skip = self._start(question, skip)
            self._forget(skip)
            return self._speak(question, stream, was_interrupted)

    def regenerate(self) -> None:
        """Answer the last question again; without a new answer the old one stays."""
        turn = self.conversation.undo()
        if turn is None:
            note("(there is no question yet)")
            return
        self._replace(turn, turn.question)

    def edit(self, text: str) -> None:
        """Ask `text` in place of the last question; without a text, offer that question for editing."""
        turn = self.conversation.undo()
        if turn is None:
            note("(there is no question yet)")
        elif text:
            self._replace(turn, check_text("the message", text))
        elif self._offers:
            self.offer = turn.question
            note("(the last turn is taken back; here is its question)")
        else:
            self.conversation.add(turn)
            note("(/edit TEXT asks TEXT in place of the last question)")

    def undo(self, number: int) -> None:
        """Forget the last turns."""
        turns = [turn for _ in range(number) if (turn := self.conversation.undo()) is not None]
        count = "no turn" if not turns else "1 turn" if len(turns) == 1 else f"{len(turns)} turns"
        left = len(self.conversation.turns)
        note(
            f"({count} taken back; {left} left{': the last question was ' + _brief(turns[-1].question) if turns else ''})"
        )

    def clear(self) -> None:
        """Forget all turns; the system message stays."""
        self.conversation = self._make_conversation(self.conversation.system)
        note("(the conversation is forgotten)")

    def set_system(self, text: str | None) -> None:
        """Tell the model something else before the conversation, from now on."""
        self.conversation.system = check_text("the system message", text) if text else None
        note("(the system message is set)" if text else "(there is no system message now)")

    def count_tokens(self) -> int:
        """Return the tokens of the conversation as the template writes it."""
        messages, template = self.conversation.messages(), self.llm.loaded.template
        if not messages or template is None:
            return 0
        return len(template.render_ids(messages, add_generation_prompt=False))

    def save(self, name: str) -> str:
        """Write the conversation and return its file's path."""
        turns = tuple(self.conversation.turns)
        return str(saved.save(name, saved.Saved(self.name, self.conversation.system, turns, self.params)))

    def load(self, name: str) -> None:
        """Go on with a saved conversation, in place of this one."""
        found = saved.load(name)
        self.conversation = self._make_conversation(found.system)
        for turn in found.turns:
            self.conversation.add(turn)
        self.params = found.parameters
        self.last = None
        turns = "1 turn" if len(found.turns) == 1 else f"{len(found.turns)} turns"
        other = "" if found.model == self.name else f", held with {found.model}; {self.name} goes on"
        about = f"; the last question was {_brief(found.turns[-1].question)}" if found.turns else ""
        note(f"(loaded: {turns}{other}{about})")

    def describe(self) -> str:
        """Return the line below the prompt."""
        done = self.last
        if done is None:
            return self.name
        used, limit = len(done.prompt_token_ids) + len(done.token_ids), self.llm.max_context
        context = f"{used} of {limit} tokens" if limit is not None else f"{used} tokens"
        return f"{self.name}, {context}, {done.timings.decode_tps:.0f} tokens/s"

    def _obey(self, call: commands.Call) -> None:
        if call.command is None:
            note(f"({call.fault})")
        else:
            call.command.run(self, call.argument)

    def _start(self, question: str, skip: int) -> tuple[Stream, int]:
        """Return the answer's stream, and how many of the oldest turns had to go: `skip` or more."""
        options: dict[str, Any] = {"template_args": self.template_args} if self.template_args else {}
        while True:
            try:
                messages = self.conversation.messages(question, skip=skip)
                return self.llm.chat_stream(messages, self.params, **options), skip
            except ContextError:
                # The count was an estimate: forget one more, until only the question itself is too long.
                if skip == len(self.conversation.turns):
                    raise
                skip += 1

    def _speak(self, question: str, stream: Stream, was_interrupted: Callable[[], bool]) -> bool:
        """Show one answer; Ctrl-C ends it, and what was said stays. -> whether there is a new turn."""
        said, thought, watch = "", "", Watch(stream)
        is_stopped = False
        try:
            with stream:
                self._screen.start()
                try:
                    for heard in listen(stream, was_interrupted):
                        said, thought = said + heard.text, thought + heard.thought
                        if heard.thought:
                            self._screen.think(heard.thought)
                        self._screen.say(heard.text)
                        self._screen.tick(watch.look)
                finally:
                    self._screen.finish()
        except KeyboardInterrupt:
            is_stopped = True
        self.last = stream.completion
        if is_stopped and not said:
            self._offer_again(question)
            return False
        self.conversation.add(Turn(question, said, thought))
        self._tell_end(is_stopped)
        self._keep_last()
        return True

    def _offer_again(self, question: str) -> None:
        """A question without any answer is not kept: templates refuse two questions in a row."""
        self.offer = question if self._offers else ""
        kept = "here it is again" if self._offers else "your message is not kept"
        note(f"(stopped before the first word; {kept})")

    def _tell_end(self, is_stopped: bool) -> None:
        done = self.last
        if is_stopped:
            note("(stopped)")
        elif done is not None and done.finish_reason == "length" and len(done.token_ids) != self.params.max_tokens:
            note(f"(the answer was cut: the context of {self.llm.max_context} tokens is full)")
        if done is not None:
            tell_dropped(done.num_dropped_tokens, self.llm.window)
            if self.view.verbose:
                note(f"({showing.figures(done)})")

    def _forget(self, number: int) -> None:
        if number:
            self.conversation.forget(number)
            turns = "the oldest turn is" if number == 1 else f"the {number} oldest turns are"
            note(f"(the conversation no longer fits into {self.llm.max_context} tokens: {turns} forgotten)")

    def _replace(self, turn: Turn, question: str) -> None:
        """Ask in place of a turn that was taken back, which stays if nothing comes of it."""
        has_answer = False
        try:
            has_answer = self.ask(question)
        finally:
            if not has_answer:
                self.offer = ""
                self.conversation.add(turn)

    def _keep_last(self) -> None:
        """Keep the conversation for `/load last`; where that fails, say so once and go on."""
        if not self._keeps_last or not self.view.history:
            return
        try:
            self.save(saved.LAST)
        except EdgeLLMError as error:
            self._keeps_last = False
            note(f"(conversations are not kept: {error})")

    def _make_conversation(self, system: str | None) -> Conversation:
        return Conversation(system, lambda text: len(self.llm.tokenize(text)))


def _brief(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 60 else f"{line[:60]}...")
