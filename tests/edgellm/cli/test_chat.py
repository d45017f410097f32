"""`edgellm chat`: commands, Ctrl-C, a history that no longer fits (case O16), through a pipe and at a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from edgellm.cli import main
from edgellm.cli.repl.conversation import Conversation, Turn
from edgellm.errors import TemplateError


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def test_a_conversation_through_a_pipe(fake_llm: Any, type_in: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fake_llm.script = [["A", "1"], ["A2\n"]]
    type_in("Q1\n\n  \nQ2\n")
    assert main(["chat", "--system", "Be brief."]) == 0
    system = {"role": "system", "content": "Be brief."}
    assert fake_llm.prompts == [
        [system, user("Q1")],
        [system, user("Q1"), assistant("A1"), user("Q2")],
    ]
    out, err = capsys.readouterr()
    assert out == "A1\nA2\n"
    assert err == "smollm2, 4096 tokens of context. /help lists the commands, /exit or Ctrl-D leaves.\n"
    assert fake_llm.is_closed


def test_commands(fake_llm: Any, type_in: Any, capsys: pytest.CaptureFixture[str]) -> None:
    type_in("Q1\n/clear\nQ2\n/help\n/nope\n/exit\nQ3\n")
    assert main(["chat", "gemma3-270m"]) == 0
    assert fake_llm.prompts == [[user("Q1")], [user("Q2")]]
    err = capsys.readouterr().err
    assert "forgotten" in err and "forget the conversation" in err and "there is no /nope" in err
    assert fake_llm.loads[0][0] == "gemma3-270m"


def test_a_model_without_a_chat_template_is_refused_at_once(
    fake_llm: Any, type_in: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_llm.loaded.template = None
    type_in("Q1\n")
    assert main(["chat", "gemma3-270m"]) == 2
    expected = (
        "gemma3-270m has no chat template, so it cannot converse; it continues text: edgellm run gemma3-270m --raw"
    )
    assert expected in capsys.readouterr().err and fake_llm.prompts == []


def test_a_path_is_a_question_not_a_command(fake_llm: Any, type_in: Any) -> None:
    type_in("/etc/passwd holds what?\n")
    assert main(["chat"]) == 0
    assert fake_llm.prompts == [[user("/etc/passwd holds what?")]]


def test_interrupt_keeps_the_partial_answer(fake_llm: Any, type_in: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fake_llm.script = [["Half", KeyboardInterrupt(), " never"], ["Yes"]]
    type_in("Q1\nQ2\n")
    assert main(["chat"]) == 0
    assert fake_llm.streams[0].is_closed
    assert fake_llm.prompts[1] == [user("Q1"), assistant("Half"), user("Q2")]
    out, err = capsys.readouterr()
    assert out == "Half\nYes\n" and "(stopped)" in err


def test_interrupt_before_the_first_word_drops_the_question(fake_llm: Any, type_in: Any) -> None:
    fake_llm.script = [[KeyboardInterrupt()], ["Yes"]]
    type_in("Q1\nQ2\n")
    assert main(["chat"]) == 0
    assert fake_llm.prompts[1] == [user("Q2")]


def test_a_failed_turn_leaves_the_conversation_usable(
    fake_llm: Any, type_in: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_llm.script = [["A1"], [TemplateError("no such role")], ["A3"]]
    type_in("Q1\nQ2\nQ3\n")
    assert main(["chat"]) == 0
    assert fake_llm.prompts[-1] == [user("Q1"), assistant("A1"), user("Q3")]
    assert "edgellm: no such role\n" in capsys.readouterr().err


def test_bytes_that_are_no_text_fail_one_turn(fake_llm: Any, type_in: Any, capsys: pytest.CaptureFixture[str]) -> None:
    type_in(b"Q\xff\nQ2\n")
    assert main(["chat"]) == 0
    assert fake_llm.prompts == [[user("Q2")]]
    assert "the message is not valid UTF-8 at character 2" in capsys.readouterr().err


def test_fifty_turns_in_a_small_context(fake_llm: Any, type_in: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fake_llm.max_context = 256
    fake_llm.script = [[f"answer {i:02}"] for i in range(50)]
    type_in("".join(f"question {i:02}\n" for i in range(50)))
    assert main(["chat", "--system", "sys"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [f"answer {i:02}" for i in range(50)]
    assert "the oldest turn is forgotten" in err and "edgellm:" not in err
    for i, messages in enumerate(fake_llm.prompts):
        assert messages[0] == {"role": "system", "content": "sys"}  # never dropped
        assert messages[-1] == user(f"question {i:02}")
        assert [m["role"] for m in messages[1:]] == ["user", "assistant"] * ((len(messages) - 2) // 2) + ["user"]
    assert len(fake_llm.prompts[-1]) > 4  # and not more than needed is dropped


def test_a_question_longer_than_the_context_is_refused_and_costs_nothing(
    fake_llm: Any, type_in: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_llm.max_context = 256
    type_in("Q1\n" + "x" * 300 + "\nQ3\n")
    assert main(["chat"]) == 0
    assert fake_llm.prompts == [[user("Q1")], [user("Q1"), assistant("Hello there"), user("Q3")]]
    err = capsys.readouterr().err
    assert "edgellm: the prompt has 310 tokens and max_context is 256" in err and "oldest" not in err


def test_the_engine_has_the_last_word_on_what_fits(
    fake_llm: Any, type_in: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_llm.max_context = 100
    monkeypatch.setattr(fake_llm, "tokenize", lambda text: [0] * 30)  # a prompt message then counts 40, not 38
    monkeypatch.setattr("edgellm.cli.repl.session.ANSWER_TOKENS", -20)  # so that the estimate lets 120 pass
    type_in("Q1\nQ2\n")
    assert main(["chat"]) == 0
    assert fake_llm.prompts == [[user("Q1")], [user("Q2")]]
    assert "the oldest turn is forgotten" in capsys.readouterr().err


def test_with_a_window_no_turn_is_forgotten_and_what_is_out_of_sight_is_told_per_answer(
    fake_llm: Any, type_in: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_llm.max_context, fake_llm.window = None, 30
    type_in("Q1\nQ2\n" + "x" * 300 + "\n")
    assert main(["chat", "--window", "30"]) == 0
    out, err = capsys.readouterr()
    assert out.count("Hello there") == 3 and [len(messages) for messages in fake_llm.prompts] == [1, 3, 5]
    assert "the last 30 tokens in sight" in err and "edgellm:" not in err and "forgotten" not in err
    assert err.count("the window of 30 tokens has moved on") == 2
    assert "17 tokens are out of the model's sight for good" in err


def test_an_answer_cut_by_the_context_is_told(fake_llm: Any, type_in: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fake_llm.ends = "length"
    type_in("Q1\n")
    assert main(["chat"]) == 0
    assert "(the answer was cut: the context of 4096 tokens is full)" in capsys.readouterr().err


def test_interrupt_at_the_terminal_prompt_drops_the_line_only(
    fake_llm: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[Any] = [KeyboardInterrupt(), "Q1", EOFError()]
    prompts = []

    def typed(prompt: str) -> str:
        prompts.append(prompt)
        line = lines.pop(0)
        if isinstance(line, BaseException):
            raise line
        return str(line)

    monkeypatch.setattr("builtins.input", typed)
    monkeypatch.setattr("edgellm.cli.repl.plain_prompt.is_terminal", lambda stream: True)
    assert main(["chat"]) == 0
    assert fake_llm.prompts == [[user("Q1")]]
    assert prompts == ["> "] * 3
    assert "leaves)" in capsys.readouterr().err


def test_interrupt_on_a_pipe_ends_the_program(fake_llm: Any, monkeypatch: pytest.MonkeyPatch, type_in: Any) -> None:
    def interrupted(prompt: str) -> str:
        raise KeyboardInterrupt

    type_in("")
    monkeypatch.setattr("builtins.input", interrupted)
    assert main(["chat"]) == 130
    assert fake_llm.is_closed


def test_whole_turns_are_skipped_until_the_rest_fits() -> None:
    history = Conversation("s" * 2, len)
    for text in ("aaaa", "bb", "c"):
        history.add(Turn(text, text))
    total = (2 + 8) + 2 * (4 + 8) + 2 * (2 + 8) + 2 * (1 + 8) + (3 + 8)
    assert history.to_skip("qqq", total) == 0
    assert history.to_skip("qqq", total - 1) == 1
    assert history.to_skip("qqq", total - 24) == 1
    assert history.to_skip("qqq", total - 25) == 2
    assert history.to_skip("qqq", 0) == 3
