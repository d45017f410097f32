"""`edgellm run`: one answer to one text, streamed to standard output or given as JSON.

Next hop: `loading.py` for the model, `..llm` for the answer.
"""

from __future__ import annotations

import json
import os
import re
from argparse import Namespace
from typing import TYPE_CHECKING

from ..config import DEFAULT_MODEL, SamplingParams
from ..errors import OptionError
from . import loading
from .form_options import add_form, check_form
from .options import MODEL_HELP, add_engine, add_sampling, engine_config, read_text, sampling_params
from .parser import Parser
from .terminal import note, tell_dropped, write_piece

if TYPE_CHECKING:
    from ..completion import Completion
    from ..llm import LLM
    from ..stream import Stream

USAGE = '[MODEL] "TEXT" [options]'
DESCRIPTION = (
    "Print one answer to TEXT, as it is made. TEXT goes through the model's chat template;\n"
    "with --raw the model continues it as it is. Without TEXT, or with -, standard input is read."
)
EXAMPLES = """\
  edgellm run "Why is the sky blue?"
  edgellm run ./model.gguf "Name three rivers." -n 60 --temperature 0
  edgellm run --raw "Once upon a time" --seed 1 --stop "The end"
  edgellm run gemma3-270m --raw - < story.txt
  edgellm run --json "Hi" --temperature 0 | python -m json.tool
  edgellm run "Is water wet?" --choice yes --choice no
  edgellm run -- "-5 + 3 is"              (a TEXT that begins with a dash)"""


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    help = f"the text, in quotes; a word before it names the model: {MODEL_HELP} (default: {DEFAULT_MODEL})"
    parser.add_argument("words", nargs="*", metavar="TEXT", help=help)
    parser.add_argument("--raw", action="store_true", help="continue TEXT as it is, without the chat template")
    json_help = "print one JSON object: text, token_ids, prompt_token_ids, finish_reason, num_dropped_tokens, timings"
    parser.add_argument("--json", action="store_true", help=json_help)
    add_sampling(parser)
    add_form(parser)
    add_engine(parser)


def execute(args: Namespace) -> int:
    """Run the command and return its exit code."""
    config, params = engine_config(args), sampling_params(args)  # mistakes first, before anything is fetched
    check_form(params)
    model, words = split_words(args.words)
    text = read_text(words)
    with loading.load_llm(model, config) as llm:
        stream = llm.stream(text, params) if args.raw else llm.chat_stream([{"role": "user", "content": text}], params)
        if args.json:
            print(json.dumps(as_dict(_finish(stream)), ensure_ascii=False))
        else:
            done = _show(stream)
            _tell_cut(llm, params, done)
            tell_dropped(done.num_dropped_tokens, llm.window)
    return 0


def split_words(words: list[str]) -> tuple[str, str | None]:
    """Tell MODEL and TEXT apart; TEXT is None where standard input is to be read."""
    if len(words) > 2:
        raise OptionError(f"{len(words)} words where MODEL and TEXT are expected; put TEXT in quotes")
    if len(words) == 2:
        model, text = words
        if not _may_be_model(model):
            raise OptionError(f'{model!r} is not a model; put a TEXT of several words in quotes: "{model} {text}"')
        return model, text
    if words and words[0] != "-" and _must_be_model(words[0]):
        word = words[0]
        raise OptionError(
            f'{word!r} is a model and TEXT is missing: edgellm run {word} "TEXT", or - for standard input'
        )
    return DEFAULT_MODEL, words[0] if words else None


def as_dict(done: Completion) -> dict[str, object]:
    """Return what --json prints."""
    return {
        "text": done.text,
        "token_ids": list(done.token_ids),
        "prompt_token_ids": list(done.prompt_token_ids),
        "finish_reason": done.finish_reason,
        "num_dropped_tokens": done.num_dropped_tokens,
        "timings": done.timings.as_dict(),
    }


def _must_be_model(word: str) -> bool:
    """Say whether nobody would mean `word` as TEXT: an alias, a .gguf file, or a repository with gguf in its name."""
    from ..hub import ALIASES

    return word in ALIASES or re.fullmatch(r"\S+\.gguf|\S+/\S*gguf\S*", word, re.IGNORECASE) is not None


def _may_be_model(word: str) -> bool:
    return _must_be_model(word) or (re.search(r"\s", word) is None and "/" in word) or os.path.isfile(word)


def _finish(stream: Stream) -> Completion:
    """Run the stream to its end, if it is not there yet."""
    for _ in stream:
        pass
    assert stream.completion is not None  # set where iteration ends
    return stream.completion


def _show(stream: Stream) -> Completion:
    """Stream the answer to standard output, and leave the cursor on a new line even after Ctrl-C."""
    last = "\n"
    try:
        with stream:
            for piece in stream:
                write_piece(piece)
                last = piece or last
    finally:
        if not last.endswith("\n"):
            write_piece("\n")
    return _finish(stream)


def _tell_cut(llm: LLM, params: SamplingParams, done: Completion) -> None:
    """Say so where the context ended the answer, rather than the model or the user's --max-tokens."""
    if done.finish_reason == "length" and len(done.token_ids) != params.max_tokens:
        ways_out = "--max-context raises it, --on-full window drops the oldest tokens"
        note(f"(the answer was cut: the context of {llm.max_context} tokens is full; {ways_out})")
