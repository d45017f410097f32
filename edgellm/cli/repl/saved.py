"""Conversations as JSON files: OpenAI's messages, with the model and the parameters they were held with.

A file is written whole, for its owner alone; every field of one that is read is checked, as it may be a stranger's. Knows no
model and no screen. Next hop: `session.py`.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ... import paths
from ...config import SamplingParams
from ...errors import OptionError, StateError
from ...private_file import make_folder, write_whole
from .conversation import Turn
from .settings import DEFAULTS, changed, from_json

FORMAT = "edgellm conversation"
VERSION = 1
MOST_BYTES = 1 << 26
LAST = "last"
"""The name under which a conversation at a terminal is kept after every answer."""
_NAME = re.compile(r"[\w-][\w. -]{0,99}")
_ROLES = ("user", "assistant")


@dataclass(frozen=True, slots=True)
class Saved:
    """What a file says. parameters: those that were not as they are by default."""

    model: str
    system: str | None
    turns: tuple[Turn, ...]
    parameters: SamplingParams


def folder() -> Path:
    """Where conversations and what was typed are kept; it may not exist yet."""
    return paths.home() / "chat"


def find_path(name: str) -> Path:
    """Return the file of a NAME, in the user's folder, or of a PATH, which has a slash or ends in .json.

    Raises OptionError for what is neither.
    """
    if "/" in name or "\\" in name or name.endswith(".json"):
        return Path(name).expanduser()
    if not _NAME.fullmatch(name):
        raise OptionError(
            f"{name!r:.80} is no name for a conversation; use letters, digits, - and _, or a path to a .json file"
        )
    return folder() / f"{name}.json"


def names() -> list[str]:
    """Return the names of the conversations in the user's folder."""
    try:
        return sorted(path.stem for path in folder().glob("*.json") if not path.name.startswith("."))
    except OSError:
        return []


def save(name: str, saved: Saved) -> Path:
    """Write a conversation and return its file. Raises OptionError, or ResourceError where it cannot be written."""
    path = find_path(name)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "model": saved.model,
        "parameters": changed(saved.parameters),
        "messages": _make_messages(saved),
    }
    try:
        data = json.dumps(content, ensure_ascii=False, indent=1).encode("utf-8", "replace") + b"\n"
    except TypeError as error:
        raise OptionError(f"the parameters cannot be saved as JSON ({error})") from None
    if path.parent == folder():
        with contextlib.suppress(OSError):  # writing says so
            make_folder(path.parent)
    write_whole(path, data, "the conversation")
    return path


def load(name: str) -> Saved:
    """Read a conversation. Raises StateError where the file is missing, damaged or of something else."""
    path = find_path(name)
    content = _read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise StateError(f"{path} is no conversation of edgellm; /save writes one")
    if content.get("version") != VERSION:
        raise StateError(f"{path} has version {content.get('version')!r:.20}, and this edgellm reads version {VERSION}")
    model = content.get("model")
    if not isinstance(model, str):
        _refuse(path, f"its model must be a text, not {model!r:.80}")
    system, turns = _read_messages(path, content.get("messages"))
    return Saved(model, system, turns, _read_parameters(path, content.get("parameters")))


def _make_messages(saved: Saved) -> list[dict[str, str]]:
    messages = [{"role": "system", "content": saved.system}] if saved.system else []
    for turn in saved.turns:
        thought = {"reasoning_content": turn.reasoning} if turn.reasoning else {}
        messages.append({"role": "user", "content": turn.question})
        messages.append({"role": "assistant", "content": turn.answer, **thought})
    return messages


def _read_json(path: Path) -> Any:
    def refuse_constant(word: str) -> NoReturn:
        raise ValueError(f"{word} is no JSON")

    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            _refuse(path, f"it is larger than {MOST_BYTES >> 20} MiB")
        return json.loads(data.decode("utf-8-sig"), parse_constant=refuse_constant)
    except FileNotFoundError:
        known = ", ".join(names()) or "none yet"
        raise StateError(f"there is no conversation at {path}; saved ones: {known}") from None
    except OSError as error:
        raise StateError(f"{path} cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:  # also of a name that no system takes, and of bytes that are no text
        raise StateError(f"{path} is damaged or no conversation: {' '.join(str(error).split())[:120]}") from None


def _read_messages(path: Path, messages: Any) -> tuple[str | None, tuple[Turn, ...]]:
    """Return the system message and the turns of a list of messages."""
    if not isinstance(messages, list):
        _refuse(path, f"its messages must be a list, not {messages!r:.80}")
    for number, message in enumerate(messages, 1):
        texts = (
            [message.get(key, "") for key in ("role", "content", "reasoning_content")]
            if isinstance(message, dict)
            else [0]
        )
        if not all(isinstance(text, str) for text in texts) or "content" not in message:
            _refuse(path, f"message {number} must have texts as role and content, not {message!r:.80}")
    system = messages[0]["content"] if messages and messages[0].get("role") == "system" else None
    said = messages if system is None else messages[1:]
    for number, message in enumerate(said):
        if message.get("role") != _ROLES[number % 2]:
            _refuse(
                path, f"where a message of the {_ROLES[number % 2]} is due comes one of {message.get('role')!r:.40}"
            )
    if len(said) % 2:
        _refuse(path, "its last question has no answer")
    pairs = zip(said[::2], said[1::2], strict=True)
    turns = tuple(Turn(q["content"], a["content"], a.get("reasoning_content", "")) for q, a in pairs)
    return system or None, turns


def _read_parameters(path: Path, values: Any) -> SamplingParams:
    if not isinstance(values, dict):
        _refuse(path, f"its parameters must be an object, not {values!r:.80}")
    unknown = [name for name in values if name not in DEFAULTS]
    if unknown:
        _refuse(path, f"it has a parameter {unknown[0]!r:.40} that this edgellm does not know")
    try:
        return SamplingParams(**{name: from_json(name, value) for name, value in values.items()})
    except OptionError as error:
        _refuse(path, str(error))


def _refuse(path: Path, why: str) -> NoReturn:
    raise StateError(f"{path} cannot be used: {why}")
