"""`edgellm run`: which word is what, streaming, JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgellm.cli import main
from edgellm.config import EngineConfig, SamplingParams


def asked(fake_llm: Any) -> tuple[str, str]:
    """Return the model and the text that arrived."""
    prompt = fake_llm.prompts[0]
    return fake_llm.loads[0][0], prompt if isinstance(prompt, str) else prompt[0]["content"]


@pytest.mark.parametrize(
    ("arguments", "typed", "expected"),
    [
        (["Hello there"], "", ("smollm2", "Hello there")),
        (["gemma3-270m", "Hello"], "", ("gemma3-270m", "Hello")),
        (["gemma3-270m", "-n", "5", "Hello"], "", ("gemma3-270m", "Hello")),
        (["owner/repo:Q4_0", "Hello"], "", ("owner/repo:Q4_0", "Hello")),
        (["./x.gguf", "a b"], "", ("./x.gguf", "a b")),
        ([], "typed\n", ("smollm2", "typed")),
        (["-"], "typed\n\n", ("smollm2", "typed\n")),
        (["gemma3-270m", "-"], "\ufeffline\r\nüñ🙂", ("gemma3-270m", "line\nüñ🙂")),
        (["--", "-5 + 3"], "", ("smollm2", "-5 + 3")),
    ],
)
def test_words_find_their_place(
    arguments: list[str], typed: str, expected: tuple[str, str], fake_llm: Any, type_in: Any
) -> None:
    type_in(typed)
    assert main(["run", *arguments]) == 0
    assert asked(fake_llm) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["smollm2"], "'smollm2' is a model and TEXT is missing: edgellm run smollm2"),
        (["dir/m.gguf"], "'dir/m.gguf' is a model and TEXT is missing"),
        (["o/r-GGUF:Q8_0"], "is a model and TEXT is missing"),
        (["hello", "world"], "'hello' is not a model; put a TEXT of several words in quotes: \"hello world\""),
        (["why", "is", "that"], "3 words where MODEL and TEXT are expected"),
        (["bad \udcff"], "TEXT is not valid UTF-8 at character 5"),
    ],
)
def test_words_that_cannot_be_meant_are_refused(
    arguments: list[str], message: str, fake_llm: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert fake_llm.loads == []


def test_standard_input_must_be_text(fake_llm: Any, type_in: Any, capsys: pytest.CaptureFixture[str]) -> None:
    type_in(b"ab\xff")
    assert main(["run", "-"]) == 2
    assert "not valid UTF-8 at byte 2" in capsys.readouterr().err


def test_a_terminal_without_text_is_asked_for_it(
    fake_llm: Any, type_in: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    type_in("")
    monkeypatch.setattr("edgellm.cli.options.is_terminal", lambda stream: True)
    assert main(["run"]) == 2
    assert "no TEXT" in capsys.readouterr().err


def test_chat_template_by_default_and_raw_on_request(fake_llm: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "Hi"]) == 0
    assert main(["run", "--raw", "Once"]) == 0
    assert fake_llm.prompts == [[{"role": "user", "content": "Hi"}], "Once"]
    assert capsys.readouterr() == ("Hello there\n" * 2, "")


def test_options_arrive(fake_llm: Any) -> None:
    answer = "-n 5 --seed 3 --stop a --stop bc --banned x --banned yz --ignore-eos"
    filters = (
        "--temperature 0.5 --top-k -1 --top-p 0.9 --min-p 0.1 --logit-bias 5=-1.5 --logit-bias 7=2 --dry-breakers ab"
    )
    order = "--samplers top_k;Temperature --mirostat 2 --repeat-last-n -1 --dry-base 2.5"
    loading = "-t 2 --max-context 99 --prefill-chunk 7 --weights raw"
    assert main(["run", "Hi", *answer.split(), *filters.split(), *order.split(), *loading.split()]) == 0
    expected = SamplingParams(
        5, 0.5, -1, 0.9, 0.1, seed=3, stop=("a", "bc"), banned=("x", "yz"), ignore_eos=True, logit_bias={5: -1.5, 7: 2.0},
        dry_breakers=("ab",), samplers=("top_k", "temperature"), mirostat=2, repeat_last_n=-1, dry_base=2.5,
    )  # fmt: skip
    assert fake_llm.params == [expected]
    assert fake_llm.loads[0][1] == EngineConfig(2, 99, 7, 1, "raw")


def test_defaults_are_those_of_config(fake_llm: Any) -> None:
    assert main(["run", "Hi"]) == 0
    assert fake_llm.params == [SamplingParams()]
    assert fake_llm.loads[0][1] == EngineConfig(max_sequences=1)


def test_every_filter_has_an_option(fake_llm: Any) -> None:
    values = {
        "temperature": 0.5, "top_k": 3, "top_p": 0.5, "min_p": 0.2, "typical_p": 0.7, "top_n_sigma": 1.5,
        "xtc_probability": 0.3, "xtc_threshold": 0.2, "repeat_penalty": 1.2, "presence_penalty": 0.1,
        "frequency_penalty": -0.2, "repeat_last_n": 9, "dry_multiplier": 0.8, "dry_base": 2.0, "dry_allowed_length": 4,
        "dry_last_n": 99, "dynatemp_range": 0.4, "dynatemp_exponent": 2.0, "mirostat": 2, "mirostat_tau": 4.0,
        "mirostat_eta": 0.2,
    }  # fmt: skip
    words = [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert main(["run", "Hi", *words, "--dry-breakers", "none"]) == 0
    assert fake_llm.params == [SamplingParams(**values, dry_breakers=())]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--temperature", "-1"], "--temperature must be at least 0, not -1"),
        (["--top-p", "1.5"], "--top-p must be from 0 to 1, not 1.5"),
        (["--min-p", "nan"], "--min-p must be a number, not nan"),
        (["--temperature", "inf"], "--temperature must be a number, not inf"),
        (["--mirostat", "1"], "--mirostat must be 0 (off) or 2, not 1"),
        (["--samplers", "top_k;tail_free"], "not 'tail_free'"),
        (["--logit-bias", "hello=1"], "'hello=1' is not ID=BIAS"),
        (["--banned", ""], "--banned must hold non-empty texts"),
    ],
)
def test_o19_a_value_that_cannot_be_is_named(
    words: list[str], message: str, fake_llm: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "Hi", *words]) == 2
    assert message in capsys.readouterr().err
    assert fake_llm.loads == []


def test_json_is_one_object(fake_llm: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fake_llm.script = [["Grüß", " 🙂"]]
    assert main(["run", "--json", "Hi"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["text"] == "Grüß 🙂"
    assert shown["num_dropped_tokens"] == 0
    assert (shown["token_ids"], shown["prompt_token_ids"], shown["finish_reason"]) == ([0, 1], [7] * 12, "stop")
    names = {"load_s", "ttft_s", "prefill_tokens", "prefill_tps", "decode_tokens", "decode_tps", "reused_tokens"}
    assert set(shown["timings"]) == names | {"draft_tokens", "accepted_tokens", "spec_speedup"}


def test_what_left_the_window_is_told_once(fake_llm: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fake_llm.max_context, fake_llm.window = None, 9
    assert main(["run", "Hi", "--window", "9"]) == 0
    assert fake_llm.loads[0][1] == EngineConfig(window=9)
    line = "(the window of 9 tokens has moved on: 5 tokens are out of the model's sight for good)\n"
    assert capsys.readouterr() == ("Hello there\n", line)
    assert main(["run", "", "--json", "--window", "9"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["num_dropped_tokens"] == 3 and err == ""
    fake_llm.window = 14
    assert main(["run", "Hi", "--on-full", "window", "--max-context", "14"]) == 0
    assert capsys.readouterr() == ("Hello there\n", "")


def test_an_answer_cut_by_the_context_is_told(fake_llm: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "Hi", "-n", "1"]) == 0
    assert capsys.readouterr().err == ""  # the user asked for one token
    fake_llm.ends = "length"
    assert main(["run", "Hi"]) == 0
    assert "the context of 4096 tokens is full" in capsys.readouterr().err


def test_a_terminal_is_not_steered(
    fake_llm: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_llm.script = [["a\x1b[2Jb\n"], ["a\x1b[2Jb\n"]]
    assert main(["run", "Hi"]) == 0
    assert capsys.readouterr().out == "a\x1b[2Jb\n"  # a pipe gets what the model said
    monkeypatch.setattr("edgellm.cli.terminal.is_terminal", lambda stream: True)
    assert main(["run", "Hi"]) == 0
    assert capsys.readouterr().out == "a\ufffd[2Jb\n"
