"""`edgellm chat`: a conversation in a terminal or through a pipe.

Chooses prompt and screen for where it runs. Next hop: `repl/session.py` for what a line does.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from argparse import Namespace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import UnsupportedError
from . import loading
from .options import add_engine, add_model, add_sampling, check_text, display_name, engine_config, sampling_params
from .parser import Parser
from .terminal import is_terminal, note

if TYPE_CHECKING:
    from ..llm import LLM
    from .repl.session import Session

USAGE = "[MODEL] [options]"
DESCRIPTION = (
    "Talk with a model. Answers are drawn as they come; Ctrl-C stops one and keeps the\n"
    "conversation, Ctrl-D leaves. Inside, /help lists the commands: /regen, /edit and /undo change\n"
    "the last turn, /set changes how answers are made, /save and /load keep conversations, /tokens\n"
    "and /stats count. Through a pipe each line is a question.\n"
    "What you type and the last conversation stay in EDGELLM_HOME or the user's cache folder, for\n"
    "you alone; --no-history keeps nothing."
)
EXAMPLES = """\
  edgellm chat                                  the default model, fetched when needed
  edgellm chat --temperature 0 --seed 1
  edgellm chat ./model.gguf --system "Answer in one sentence." --max-context 8192
  edgellm chat --resume last                    go on where the last conversation ended
  printf 'Hi\\nWhat did I say?\\n' | edgellm chat    one question a line; answers on standard output"""


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    add_model(parser)
    add = parser.add_argument
    add("--system", metavar="TEXT", help="what the model is told before the conversation")
    add(
        "--resume", metavar="NAME", help="go on with a conversation that /save kept, or with a file; last is the latest"
    )
    add("--plain", action="store_true", help="show answers as they are written, without drawing their Markdown")
    add("--no-history", action="store_true", help="keep neither what is typed nor the last conversation")
    add("--verbose", action="store_true", help="show figures after every answer")
    add_sampling(parser)
    add_engine(parser)


def execute(args: Namespace) -> int:
    """Run the command and return its exit code."""
    config, params = engine_config(args), sampling_params(args)
    system = check_text("--system", args.system) if args.system else None
    if args.resume:
        from .repl import saved

        saved.load(args.resume)  # mistakes first, before anything is fetched
    if _is_drawn():
        _import_soon("rich_prompt")  # while the model loads, which is mostly not Python's work
    with loading.load_llm(args.model, config) as llm:
        name = display_name(args.model)
        if llm.loaded.template is None:
            way_out = f'it continues text: edgellm run {args.model} --raw "TEXT"'
            raise UnsupportedError(f"{name} has no chat template, so it cannot converse; {way_out}")
        note(f"{name}, {_sight(llm)}. /help lists the commands, /exit or Ctrl-D leaves.")
        session, prompt = _make_session(args, llm, name, params, system)
        if args.resume:
            session.load(args.resume)
            if system:
                session.set_system(system)
        if _is_drawn():
            _import_soon("live_screen")  # while the user types
        while (line := prompt.read(_take_offer(session))) is not None and session.take(line):
            pass
    return 0


def _make_session(args: Namespace, llm: LLM, name: str, params: Any, system: str | None) -> tuple[Session, Any]:
    """Return a session and the prompt that feeds it."""
    from .repl.plain_prompt import PlainPrompt
    from .repl.saved import folder
    from .repl.screen import View, make_screen
    from .repl.session import Session

    is_typed = is_terminal(sys.stdin)
    view = View(markdown=not args.plain, verbose=args.verbose, history=is_typed and not args.no_history)
    prompt: Any = None
    describe = [lambda: name]
    if _is_drawn():
        from .repl.recall import Recall
        from .repl.rich_prompt import make_rich_prompt

        recall = Recall(folder() / "typed.jsonl", reads=view.history)
        prompt = make_rich_prompt(lambda: describe[0](), lambda: view.history, recall)
    prompt = prompt or PlainPrompt()
    session = Session(
        llm,
        name,
        params,
        system,
        lambda: make_screen(view),
        view,
        offers=prompt.offers,
        keeps_last=is_typed,
        debug=args.debug,
    )
    describe[0] = session.describe
    return session, prompt


def _is_drawn() -> bool:
    """Say whether a person types at a terminal that can be drawn on."""
    from .repl.screen import is_capable

    return is_terminal(sys.stdin) and is_capable()


def _import_soon(name: str) -> None:
    """Import a part of the REPL in the background; whoever needs it before that is done waits for it."""

    def work() -> None:
        with contextlib.suppress(Exception):  # whoever needs it says what is wrong
            import_module(f"{__package__}.repl.{name}")

    threading.Thread(target=work, name="edgellm-import", daemon=True).start()


def _take_offer(session: Session) -> str:
    """Return what the next prompt begins with; it is offered once."""
    offer, session.offer = session.offer, ""
    return offer


def _sight(llm: LLM) -> str:
    return f"{llm.max_context} tokens of context" if llm.window is None else f"the last {llm.window} tokens in sight"
