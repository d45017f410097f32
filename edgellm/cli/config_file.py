"""Options from a YAML file, as vLLM's `--config` has them: `max-num-seqs: 8` is `--max-num-seqs 8`.

Only the file's shape is read here: values stay the texts they are in the file, and the parser reads them as it reads words. So
nothing is constructed, no tag means anything, and `on`, `1:30` or `010` are what they look like. Knows no option's meaning.
Next hop: `parser.py`. Source: vLLM's documentation, "Server arguments", configuration file.
"""

from __future__ import annotations

import argparse
import json
import re
from difflib import get_close_matches
from typing import Any

from ..errors import OptionError, UnsupportedError
from .parser import Parser
from .text_file import read_text

FILE_LIMIT = 64 << 10
MAX_DEPTH = 3
"""A list or an object within the file's own."""
FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
NOTHING = ("", "~", "null")
MODELS = ("model", "models")
NOT_HERE = ("config", "help", "debug")


def read_config(path: str, parser: Parser) -> dict[str, Any]:
    """Return {name: value} of the options in a file. Raises OptionError that names the file, and the key or the line."""
    try:
        pairs = _read_pairs(path)
        models = [text for key in MODELS if key in pairs for text in _texts(key, pairs.pop(key))]
        words = [word for key, value in pairs.items() for word in _words(key, value, parser)]
        return parser.parse_given([*words, "--", *models])
    except OptionError as error:
        raise OptionError(f"--config {path}: {error}") from None


def _read_pairs(path: str) -> dict[str, Any]:
    try:
        import yaml
    except ModuleNotFoundError:
        raise UnsupportedError("--config needs PyYAML: pip install 'edgellm[server]'") from None
    text = read_text(path, "it", FILE_LIMIT, f"{FILE_LIMIT >> 10} KiB")
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.BaseLoader)):
            raise OptionError("aliases (*name) are not taken here; write the value where it is meant")
        root = yaml.compose(text, Loader=yaml.BaseLoader)
        found = None if root is None else _plain(root, MAX_DEPTH)
    except RecursionError:
        raise OptionError("it is nested too deep") from None
    except yaml.YAMLError as error:
        raise OptionError(f"it is not YAML: {_where(error)}") from None
    if found is not None and not isinstance(found, dict):
        raise OptionError("it must hold names and values, as max-num-seqs: 8")
    return found or {}


def _where(error: Any) -> str:
    mark = getattr(error, "problem_mark", None)
    what = " ".join(str(getattr(error, "problem", None) or error).split())[:200]
    return what if mark is None else f"line {mark.line + 1}: {what}"


def _plain(node: Any, depth: int) -> Any:
    """Texts, lists and objects of them; None for an empty value."""
    line = node.start_mark.line + 1
    if depth == 0:
        raise OptionError(f"line {line}: a value is nested too deep")
    if node.id == "scalar":
        return None if node.style is None and node.value in NOTHING else node.value
    if node.id == "sequence":
        return [_plain(item, depth - 1) for item in node.value]
    found: dict[str, Any] = {}
    for key, value in node.value:
        if key.id != "scalar":
            raise OptionError(f"line {line}: a key must be an option's name")
        if key.value in found:
            raise OptionError(f"line {key.start_mark.line + 1}: {key.value} is there twice")
        found[key.value] = _plain(value, depth - 1)
    return found


def _words(key: str, value: Any, parser: Parser) -> list[str]:
    """What would stand on the command line."""
    name = key.replace("_", "-")
    known = {word[2:]: action for action in parser._actions for word in action.option_strings if word[:2] == "--"}
    known = {word: action for word, action in known.items() if word not in NOT_HERE}
    if name not in known:
        close = get_close_matches(name, [*known, "model"], n=1)
        raise OptionError(f"there is no option {key}" + (f"; did you mean {close[0]}?" if close else ""))
    action = known[name]
    if action.nargs == 0:
        flag = FLAGS.get(value.lower()) if isinstance(value, str) else None
        if flag is None:
            raise OptionError(f"{key} must be true or false")
        opposite = f"no-{name}"
        return [f"--{name}"] if flag else [f"--{opposite}"] if opposite in known else []
    if isinstance(value, dict) and action.metavar == "JSON":
        return [f"--{name}={json.dumps({word: _json(item) for word, item in value.items()})}"]
    texts = _texts(key, value)
    if len(texts) > 1 and not isinstance(action, argparse._AppendAction):
        raise OptionError(f"{key} takes one value, not a list")
    return [f"--{name}={text}" for text in texts]


def _texts(key: str, value: Any) -> list[str]:
    if isinstance(value, dict):
        raise OptionError(f"{key} takes one value, not an object")
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise OptionError(f"{key} needs a value")
    return texts


def _json(value: Any) -> Any:
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value) else value
