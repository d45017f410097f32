"""Words on the screen: colours only where wanted, nothing a terminal would obey, notes and errors on stderr.

It knows nothing of models. Next hop: whoever prints.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

from ..errors import EdgeLLMError

_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"
# C0 and C1 control characters but tab and line feed: a model or a stranger's file must not steer the terminal.
_CONTROLS = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}


def is_terminal(stream: TextIO) -> bool:
    """Say whether a person looks at `stream`."""
    return stream is not None and not stream.closed and stream.isatty()


def wants_colour(stream: TextIO) -> bool:
    """Say whether `stream` is a terminal whose user has not declined colours (https://no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def dim(text: str, stream: TextIO) -> str:
    """Return `text` in faint letters where `stream` shows them."""
    return f"{_DIM}{text}{_PLAIN}" if wants_colour(stream) else text


def bold(text: str, stream: TextIO) -> str:
    """Return `text` in strong letters where `stream` shows them."""
    return f"{_BOLD}{text}{_PLAIN}" if wants_colour(stream) else text


def printable(text: str) -> str:
    """Return `text` with control characters replaced, so that a terminal only shows it."""
    return text.translate(_CONTROLS)


def write_piece(piece: str) -> None:
    """Show a piece of an answer at once; a pipe gets it as it is, a terminal without control characters."""
    sys.stdout.write(printable(piece) if is_terminal(sys.stdout) else piece)
    sys.stdout.flush()


def note(text: str) -> None:
    """Tell the user something beside the answer: a faint line on stderr."""
    print(dim(printable(text), sys.stderr), file=sys.stderr, flush=True)


def tell_dropped(number: int, window: int | None) -> None:
    """Say how much of a conversation has left the window, if any; the answer is complete without this line."""
    if number:
        tokens = "1 token is" if number == 1 else f"{number} tokens are"
        note(f"(the window of {window} tokens has moved on: {tokens} out of the model's sight for good)")


def report(error: BaseException, *, debug: bool = False) -> None:
    """Print `error` as one line on stderr, after its traceback when `debug`."""
    if debug:
        import traceback

        traceback.print_exception(type(error), error, error.__traceback__)
    print(f"edgellm: {one_line(describe(error))}", file=sys.stderr, flush=True)


def describe(error: BaseException) -> str:
    """Say what went wrong, in the user's words where the error is a known one."""
    if isinstance(error, EdgeLLMError):
        return str(error)
    if isinstance(error, MemoryError):
        return "not enough memory; a smaller model or --max-context needs less"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return f"unexpected {type(error).__name__}: {error} (a bug worth reporting; --debug shows the traceback)"


def one_line(text: str) -> str:
    """Fold `text` into one harmless line."""
    return printable(" ".join(text.split()))


def human_bytes(count: int) -> str:
    """Return a byte count as people read it, in powers of 1000."""
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB"):
        if size < 999.5:
            break
        size, unit = size / 1000, larger
    digits = 1 if unit != "B" and size < 9.95 else 0
    return f"{size:.{digits}f} {unit}"


def human_count(count: int) -> str:
    """Return a number of things as people read it: 134.5 million."""
    for size, word in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if count >= size:
            return f"{count / size:.3g} {word}"
    return str(count)


def allow_any_character() -> None:
    """Let the streams take any character: output replaces what its encoding lacks (an old code page) instead of
    failing in mid-answer; input marks bytes that are no text, for `options.check_text` to name."""
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace"), (sys.stderr, "replace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
