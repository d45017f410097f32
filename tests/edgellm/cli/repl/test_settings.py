"""Every sampling parameter can be set by typing, and mistakes are named."""

from __future__ import annotations

from typing import Any

import pytest

from edgellm.cli.repl import settings
from edgellm.config import SamplingParams
from edgellm.errors import OptionError

START = SamplingParams(temperature=0.3)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("temperature", "0", 0.0),
        ("temperature", "default", 0.3),
        ("top_k", "-1", -1),
        ("max_tokens", "12", 12),
        ("max_tokens", "none", None),
        ("seed", "7", 7),
        ("ignore_eos", "on", True),
        ("json", "yes", True),
        ("stop", 'a "b c"', ("a", "b c")),
        ("stop", '["\\n", "x"]', ("\n", "x")),
        ("stop", "none", ()),
        ("samplers", "top_k, temperature", ("top_k", "temperature")),
        ("logit_bias", '{"42": -1.5}', {42: -1.5}),
        ("regex", "[ab]+ c", "[ab]+ c"),
        ("schema", '{"type": "object"}', {"type": "object"}),
        ("choices", "yes no", ("yes", "no")),
    ],
)
def test_a_value_is_typed(name: str, text: str, value: Any) -> None:
    assert getattr(settings.change(SamplingParams(), START, name, text), name) == value


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("temperatur", "1", "there is no parameter temperatur: did you mean temperature?"),
        ("zzz", "1", "there is no parameter zzz: there are max_tokens"),
        ("num_ctx", "9", "there is no parameter num_ctx: the context is chosen at the start"),
        ("temperature", "hot", "temperature must be a number, not 'hot'"),
        ("temperature", "-1", "temperature must be at least 0, not -1"),
        ("top_k", "1.5", "top_k must be a whole number, not '1.5'"),
        ("max_tokens", "0", "max_tokens must be at least 1"),
        ("json", "maybe", "json must be true or false, not 'maybe'"),
        ("stop", '"open', "stop cannot be read"),
        ("stop", "[1]", "stop must be a list of texts"),
        ("logit_bias", "[]", "logit_bias must map token ids to numbers"),
        ("logit_bias", "{", "logit_bias must be JSON"),
        ("schema", "[" * 100_000, "schema must be JSON"),
    ],
)
def test_a_mistake_is_named(name: str, text: str, says: str) -> None:
    with pytest.raises(OptionError) as caught:
        settings.change(SamplingParams(), START, name, text)
    assert says in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", list(settings.DEFAULTS))
def test_every_field_has_a_kind_and_a_way_back(name: str) -> None:
    value = settings.DEFAULTS[name]
    assert settings.change(SamplingParams(), SamplingParams(), name, "default") == SamplingParams()
    assert settings.from_json(name, settings._to_json(value)) == value
    assert settings.usual_values(name)[0] == "default"


def test_what_is_changed_is_json_and_comes_back() -> None:
    params = SamplingParams(temperature=0.0, stop=("a",), logit_bias={3: 1.0}, seed=1)
    changed = settings.changed(params)
    assert changed == {"temperature": 0.0, "stop": ["a"], "logit_bias": {"3": 1.0}, "seed": 1}
    assert SamplingParams(**{name: settings.from_json(name, value) for name, value in changed.items()}) == params
