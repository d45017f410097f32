"""What /show, /tokens and /stats say. Looks at a session and changes nothing. Next hop: `commands.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import settings

if TYPE_CHECKING:
    from ...completion import Completion, Timings
    from .session import Session


def info(session: Session) -> str:
    """Say which model this is and what it was loaded with."""
    from ...inspect import summarise
    from ..inspect import paragraph

    loaded = session.llm.loaded
    summary = summarise(loaded.file, loaded.config.cache_formats)
    said = paragraph(summary, session.llm.max_context or summary.default_context)
    threads = "1 thread" if loaded.num_threads == 1 else f"{loaded.num_threads} threads"
    return f"{said}\nIt runs on {threads} with {loaded.level}, from {loaded.path}."


def system(session: Session) -> str:
    """Say what the model is told before the conversation."""
    text = session.conversation.system
    return f"system: {text}" if text else "system: (nothing; /system TEXT tells the model something)"


def parameters(session: Session) -> str:
    """List how answers are made, what differs from the defaults first."""
    params = session.params
    lines = [f"{name:<18} {getattr(params, name)!r}" for name in settings.DEFAULTS]
    is_other = [getattr(params, name) != default for name, default in settings.DEFAULTS.items()]
    ordered = [f"{line} (changed)" for line, other in zip(lines, is_other, strict=True) if other]
    return "\n".join(
        ["parameters:", *ordered, *(line for line, other in zip(lines, is_other, strict=True) if not other)]
    )


def template(session: Session) -> str:
    """Show the model's chat template."""
    source = getattr(session.llm.loaded.template, "source", "")
    return source.strip() or "(the model file has no chat template)"


def messages(session: Session) -> str:
    """Show the conversation."""
    said = [f"{message['role']}: {message['content']}" for message in session.conversation.messages()]
    return "\n".join(said) or "(nothing has been said yet)"


def tokens(session: Session) -> str:
    """Say how much of the context the conversation takes."""
    used, limit, window = session.count_tokens(), session.llm.max_context, session.llm.window
    turns = len(session.conversation.turns)
    said = f"{used} tokens in {turns} turn{'' if turns == 1 else 's'}"
    if limit is not None:
        return f"{said}, of a context of {limit}: {max(limit - used, 0)} are free"
    return f"{said}; the last {window} tokens are in sight" if window is not None else f"{said}; the context has no end"


def stats(session: Session) -> str:
    """Say how fast the last answer was."""
    done = session.last
    return figures(done) if done is not None else "(no answer yet)"


def figures(done: Completion) -> str:
    """Say how fast an answer was."""
    t = done.timings
    read = t.prefill_tokens - t.reused_tokens
    speed = f" at {t.prefill_tps:.0f} tokens/s" if t.prefill_tps else ""
    return (
        f"prompt {t.prefill_tokens} tokens, {t.reused_tokens} of them known already, {read} read{speed};"
        f" first token after {t.ttft_s:.2f} s; answer {len(done.token_ids)} tokens at {t.decode_tps:.1f} tokens/s"
        f" ({done.finish_reason}){guesses(t)}"
    )


def guesses(t: Timings) -> str:
    """Say what speculation did, if it did anything."""
    if not t.draft_tokens:
        return ""
    return f"; {t.draft_tokens} tokens guessed, {t.accepted_tokens} of them right: {t.spec_speedup:.2f} times as fast"
