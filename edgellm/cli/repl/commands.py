"""What a line that begins with a slash does: one function a command, and the table of them.

A path is no command, and a line that begins with a space never is one. Next hop: `session.py`, on which they act;
`showing.py` for what /show, /tokens and /stats say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...errors import OptionError
from ..terminal import note
from . import saved, settings, showing
from .multiline import unwrap

if TYPE_CHECKING:
    from .session import Session

_LINE = re.compile(r"/([A-Za-z]+|\?)(?:\s+(.*))?", re.DOTALL)
SHOW_TOPICS = {
    "info": "the model",
    "system": "what it is told before the conversation",
    "parameters": "how answers are made",
    "template": "the model's chat template",
    "messages": "the conversation, as the model is shown it",
}
KEYS = """\
Enter sends, Alt-Enter (or Esc, Enter) begins a new line; \"\"\" begins and ends a text of several lines.
Up and Down recall earlier lines, Tab completes a command, Ctrl-R searches.
Ctrl-C stops an answer and keeps what was said, or clears the line; twice, or Ctrl-D, leaves.
A path (/etc/hosts) is text, and so is every line that begins with a space."""


@dataclass(frozen=True, slots=True)
class Command:
    """arguments: how they are written; empty if it takes none. help: one line. run: does it, with what stands after it."""

    arguments: str
    help: str
    run: Callable[[Session, str], None]


@dataclass(frozen=True, slots=True)
class Call:
    """A line that is no text. fault: why it cannot be done, if it cannot."""

    command: Command | None
    argument: str = ""
    fault: str = ""


def parse(line: str) -> Call | None:
    """Return the command in a line, or None if the line is text for the model."""
    match = _LINE.fullmatch(line.rstrip())
    if match is None:
        return None
    name, argument = ALIASES.get(match[1], match[1]), (match[2] or "").strip()
    command = COMMANDS.get(name)
    if command is not None:
        if argument and not command.arguments:
            return Call(None, fault=f"/{name} takes nothing after it; to send this as text, begin with a space")
        return Call(command, unwrap(argument))
    from difflib import get_close_matches

    close = get_close_matches(name, COMMANDS, n=1, cutoff=0.7)
    if argument and not close:
        return None
    hint = f"did you mean /{close[0]}?" if close else "/help lists the commands"
    return Call(
        None,
        fault=f"there is no /{name}; {hint} To send it as text, begin with a space"
        if close
        else f"there is no /{name}; {hint}",
    )


def _help(session: Session, argument: str) -> None:
    width = max(len(f"{name} {command.arguments}") for name, command in COMMANDS.items())
    lines = [f"/{name + ' ' + command.arguments:{width}}  {command.help}" for name, command in COMMANDS.items()]
    note("\n".join([*lines, "", KEYS]))


def _regen(session: Session, argument: str) -> None:
    session.regenerate()


def _edit(session: Session, argument: str) -> None:
    session.edit(argument)


def _undo(session: Session, argument: str) -> None:
    if argument and not re.fullmatch(r"[1-9]\d{0,5}", argument):
        raise OptionError(f"/undo takes a number of turns, not {argument[:40]!r}")
    session.undo(int(argument or 1))


def _system(session: Session, argument: str) -> None:
    if not argument:
        note(showing.system(session))
        return
    session.set_system(None if argument in ('""', "none") else argument)


def _set(session: Session, argument: str) -> None:
    topic, _, rest = argument.partition(" ")
    rest = unwrap(rest.strip())
    if not topic:
        note("\n".join(f"/set {name:<10} {meaning}" for name, meaning in settings.TOPICS.items()))
    elif topic == "parameter" or topic in settings.DEFAULTS:
        name, _, value = rest.partition(" ") if topic == "parameter" else (topic, "", rest)
        _set_parameter(session, name, value.strip())
    elif topic == "system":
        _system(session, rest)
    elif topic in ("format", "noformat"):
        _set_format(session, topic, rest)
    elif topic in ("think", "nothink"):
        session.template_args = {"enable_thinking": topic == "think"}
        note(f"({settings.TOPICS[topic]}, if its template asks)")
    elif topic in settings.TOPICS:
        field = "verbose" if topic == "quiet" else topic.removeprefix("no")
        setattr(session.view, field, topic == field)
        note(f"({settings.TOPICS[topic]})")
    else:
        raise OptionError(f"there is no setting {topic[:40]!r}: there are {', '.join(settings.TOPICS)}")


def _set_parameter(session: Session, name: str, value: str) -> None:
    if not name:
        note(showing.parameters(session))
        return
    if value:
        session.params = settings.change(session.params, session.start_params, name, value)
    settings.check_name(name)
    note(f"({name} is {getattr(session.params, name)!r})")


def _set_format(session: Session, topic: str, rest: str) -> None:
    if topic == "format" and rest != "json":
        raise OptionError(f"the format must be json, not {rest[:40]!r}; /set parameter schema takes a JSON Schema")
    session.params = replace(session.params, json=topic == "format")
    note("(every answer is a JSON object)" if session.params.json else "(answers may have any form)")


def _show(session: Session, argument: str) -> None:
    if not argument:
        note("\n".join([showing.info(session), showing.system(session), showing.parameters(session)]))
        return
    if argument not in SHOW_TOPICS:
        raise OptionError(f"/show has nothing called {argument[:40]!r}: there are {', '.join(SHOW_TOPICS)}")
    note(getattr(showing, argument)(session))


def _save(session: Session, argument: str) -> None:
    note(f"(saved: {session.save(argument or saved.LAST)})")


def _load(session: Session, argument: str) -> None:
    if not argument:
        known = ", ".join(saved.names())
        note(f"saved conversations: {known}" if known else "(no conversation is saved yet)")
        return
    session.load(argument)


def _clear(session: Session, argument: str) -> None:
    session.clear()


def _tokens(session: Session, argument: str) -> None:
    note(showing.tokens(session))


def _stats(session: Session, argument: str) -> None:
    note(showing.stats(session))


def _exit(session: Session, argument: str) -> None:
    session.has_ended = True


COMMANDS = {
    "help": Command("", "show this", _help),
    "regen": Command("", "answer the last question again", _regen),
    "edit": Command("[TEXT]", "change the last question and ask again", _edit),
    "undo": Command("[N]", "forget the last turn, or the last N", _undo),
    "system": Command("[TEXT]", 'show or set what the model is told before the conversation; "" is nothing', _system),
    "set": Command("[NAME VALUE]", "change a parameter or a setting; alone it lists them", _set),
    "show": Command("[TOPIC]", f"tell about {', '.join(SHOW_TOPICS)}", _show),
    "save": Command("[NAME|PATH]", "keep the conversation", _save),
    "load": Command("[NAME|PATH]", "go on with a saved one; last is the latest; alone it lists them", _load),
    "clear": Command("", "forget the conversation", _clear),
    "tokens": Command("", "how many tokens the conversation takes", _tokens),
    "stats": Command("", "how fast the last answer was", _stats),
    "exit": Command("", "leave (so does Ctrl-D)", _exit),
}
ALIASES = {"?": "help", "bye": "exit", "quit": "exit"}
