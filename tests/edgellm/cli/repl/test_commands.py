"""What lines with a slash do, through a pipe (case O16 in the small: a history that no longer fits, then /undo)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from edgellm.cli import main
from edgellm.cli.repl import commands, showing
from edgellm.completion import Timings
from edgellm.errors import TemplateError


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def system(text: str) -> dict[str, str]:
    return {"role": "system", "content": text}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGELLM_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def talk(fake_llm: Any, type_in: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that sends lines and returns (standard output, stderr); the model numbers its answers."""

    def send(*lines: str, arguments: tuple[str, ...] = ()) -> tuple[str, str]:
        if not fake_llm.script:
            fake_llm.script = [[f"A{number}"] for number in range(1, 30)]
        type_in("".join(line + "\n" for line in lines))
        assert main(["chat", *arguments]) == 0
        return capsys.readouterr()

    return send


@pytest.mark.parametrize(
    "line",
    [
        "hello",
        "/etc/hosts",
        "/usr/bin is where?",
        "/etc/hosts says what",
        "/dev/null",
        " /help",
        "/x2",
        "/ help",
        "//help",
        "/frobnicate the table",
        "/home is where the heart is",
    ],
)
def test_this_is_text(line: str) -> None:
    assert commands.parse(line) is None


@pytest.mark.parametrize(
    "line", ["/help", "/?", "/bye", "/quit", "/exit ", "/set", "/set parameter seed 1", "/system a\nb"]
)
def test_this_is_a_command(line: str) -> None:
    call = commands.parse(line)
    assert call is not None and call.command is not None and not call.fault


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("/nope", "there is no /nope; /help lists the commands"),
        ("/sett temperature 1", "there is no /sett; did you mean /set?"),
        ("/clear the table", "/clear takes nothing after it"),
    ],
)
def test_a_slip_is_told_and_sends_nothing(line: str, says: str, talk: Any, fake_llm: Any) -> None:
    _, err = talk(line)
    assert says in err and fake_llm.prompts == []


def test_help_names_every_command(talk: Any) -> None:
    _, err = talk("/help")
    assert all(f"\n/{name} " in f"\n{err}" for name in commands.COMMANDS)
    assert all(command.help in err for command in commands.COMMANDS.values())


def test_regen_answers_again_in_place(talk: Any, fake_llm: Any) -> None:
    out, _ = talk("Q1", "Q2", "/regen", "Q3")
    assert out == "A1\nA2\nA3\nA4\n"
    assert fake_llm.prompts[2] == fake_llm.prompts[1]
    assert fake_llm.prompts[3] == [user("Q1"), assistant("A1"), user("Q2"), assistant("A3"), user("Q3")]


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), TemplateError("no")])
def test_a_regen_without_an_answer_keeps_the_old_one(fault: BaseException, talk: Any, fake_llm: Any) -> None:
    fake_llm.script = [["A1"], [fault], ["A3"]]
    talk("Q1", "/regen", "Q2")
    assert fake_llm.prompts[-1] == [user("Q1"), assistant("A1"), user("Q2")]


def test_edit_asks_something_else(talk: Any, fake_llm: Any) -> None:
    _, err = talk("/edit x", "Q1", "/edit Q1b", "/edit", "Q2")
    assert fake_llm.prompts == [[user("Q1")], [user("Q1b")], [user("Q1b"), assistant("A2"), user("Q2")]]
    assert "there is no question yet" in err and "/edit TEXT asks" in err


def test_undo(talk: Any, fake_llm: Any) -> None:
    _, err = talk("/undo", "Q1", "Q2", "Q3", "/undo 2", "Q4", "/undo 9", "/undo x", "Q5")
    assert fake_llm.prompts[3] == [user("Q1"), assistant("A1"), user("Q4")] and fake_llm.prompts[4] == [user("Q5")]
    assert "2 turns taken back; 1 left: the last question was 'Q2'" in err
    assert "no turn taken back" in err and "/undo takes a number of turns, not 'x'" in err


def test_system(talk: Any, fake_llm: Any) -> None:
    _, err = talk("/system", "/system Be brief.", "Q1", "/set system Be long.", "/clear", "Q2", '/system ""', "Q3")
    assert fake_llm.prompts[:2] == [[system("Be brief."), user("Q1")], [system("Be long."), user("Q2")]]
    assert fake_llm.prompts[2] == [user("Q2"), assistant("A2"), user("Q3")]
    assert "system: (nothing" in err and "there is no system message now" in err


def test_texts_of_several_lines(talk: Any, fake_llm: Any) -> None:
    talk('/system """a', 'b"""', '"""first', "", ' second"""', '"""never closed', "so")
    assert fake_llm.prompts[0] == [system("a\nb"), user("first\n\n second")]
    assert fake_llm.prompts[1][-1] == user("never closed\nso")


def test_set(talk: Any, fake_llm: Any) -> None:
    _, err = talk(
        "/set", "/set parameter temperature 0", "/set top_k 3", "/set parameter", "Q1", "/set temperature default", "Q2"
    )
    assert [(params.temperature, params.top_k) for params in fake_llm.params] == [(0.0, 3), (0.8, 3)]
    assert "(temperature is 0.0)" in err and "temperature        0.0 (changed)" in err and "/set verbose" in err


def test_set_what_is_seen(talk: Any, fake_llm: Any) -> None:
    _, err = talk("/set verbose", "Q1", "/set quiet", "Q2", "/set format json", "Q3", "/set noformat", "Q4")
    assert err.count("first token after 0.01 s") == 1
    assert [params.json for params in fake_llm.params] == [False, False, True, False]


def test_set_whether_it_thinks(talk: Any, fake_llm: Any) -> None:
    talk("Q1", "/set nothink", "Q2", "/set think", "Q3")
    args = {"template_args": {"enable_thinking": False}}, {"template_args": {"enable_thinking": True}}
    assert fake_llm.options == [{}, *args]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("/set colour red", "there is no setting 'colour'"),
        ("/set format xml", "the format must be json"),
        ("/set parameter heat 1", "there is no parameter heat"),
        ("/set parameter heat", "there is no parameter heat"),
        ("/set parameter top_p 2", "top_p must be from 0 to 1, not 2"),
        ("/show me", "/show has nothing called 'me'"),
        ("/load nothing", "there is no conversation at"),
        ("/save a:b", "no name for a conversation"),
    ],
)
def test_a_mistake_costs_nothing(line: str, says: str, talk: Any, fake_llm: Any) -> None:
    _, err = talk("Q1", line, "Q2")
    assert f"edgellm: {says}" in err.replace("''", "'") or says in err
    assert fake_llm.prompts[1] == [user("Q1"), assistant("A1"), user("Q2")] and fake_llm.params[0] == fake_llm.params[1]


def test_tokens_and_stats(talk: Any) -> None:
    _, err = talk("/tokens", "/stats", "Q1", "/tokens", "/stats", arguments=("--system", "sys"))
    assert "13 tokens in 0 turns, of a context of 4096: 4083 are free" in err and "(no answer yet)" in err
    assert "37 tokens in 1 turn" in err
    assert "prompt 4 tokens, 0 of them known already, 4 read at 400 tokens/s; first token after 0.01 s" in err


def test_stats_tell_of_guesses() -> None:
    timings = Timings(0.0, 0.1, 5, 100.0, 20, 50.0, draft_tokens=12, accepted_tokens=9, spec_speedup=1.5)
    assert showing.guesses(timings) == "; 12 tokens guessed, 9 of them right: 1.50 times as fast"
    assert showing.guesses(dataclasses.replace(timings, draft_tokens=0)) == ""


def test_show(talk: Any) -> None:
    _, err = talk("Q1", "/show system", "/show template", "/show messages", "/show parameters")
    assert "{{ messages }}" in err and "user: Q1\nassistant: A1" in err and "seed               None" in err


def test_save_and_load(talk: Any, fake_llm: Any, home: Path) -> None:
    _, err = talk(
        "/load",
        "Q1",
        "/set temperature 0",
        "/save trip",
        "/clear",
        "Q2",
        "/load trip",
        "Q3",
        arguments=("--system", "s"),
    )
    assert "no conversation is saved yet" in err and "(loaded: 1 turn; the last question was 'Q1')" in err
    assert fake_llm.prompts[-1] == [system("s"), user("Q1"), assistant("A1"), user("Q3")]
    assert fake_llm.params[-1].temperature == 0.0
    content = json.loads((home / "chat" / "trip.json").read_text("utf-8"))
    assert content["model"] == "smollm2" and content["parameters"] == {"temperature": 0.0}


def test_resume_with_another_model(talk: Any, fake_llm: Any) -> None:
    talk("Q1", "/save trip")
    _, err = talk("Q2", arguments=("gemma3-270m", "--resume", "trip", "--system", "new"))
    assert "held with smollm2; gemma3-270m goes on" in err
    assert fake_llm.prompts[-1] == [system("new"), user("Q1"), assistant("A1"), user("Q2")]


def test_what_cannot_be_resumed_is_said_before_anything_is_loaded(
    fake_llm: Any, type_in: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    type_in("Q1\n")
    assert main(["chat", "--resume", "nothing"]) == 2
    assert "there is no conversation at" in capsys.readouterr().err and fake_llm.loads == []


def test_a_pipe_keeps_nothing_by_itself(talk: Any, home: Path) -> None:
    talk("Q1")
    assert list(home.iterdir()) == []


def test_o16_after_forgotten_turns_undo_and_regen_go_on(talk: Any, fake_llm: Any) -> None:
    fake_llm.max_context = 100
    out, err = talk(*("question" for _ in range(9)), "/regen", "/undo", "x" * 200, "last")
    assert "forgotten" in err and "the prompt has 210 tokens and max_context is 100" in err
    assert all(sum(len(m["content"]) + 10 for m in prompt) < 100 for prompt in fake_llm.prompts)
    assert out.splitlines()[-1] == "A11" and fake_llm.prompts[-1][-1] == user("last")
