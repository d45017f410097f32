"""A template cannot run on, fill the memory or overflow the stack (O26): counted, without signals, in any thread."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from typing import Any

import pytest
import tiny_vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.chat_template import ChatTemplate, meter
from edgellm.chat_template.meter import Limits, Meter, OverLimit, weigh
from edgellm.errors import TemplateError
from edgellm.tokenizer import Tokenizer

TOKENIZER = Tokenizer(tiny_vocabulary.make_bpe(512))
HI = [{"role": "user", "content": "Hi"}]
SMALL = Limits(steps=20_000, value_units=20_000, total_units=400_000)


def small(source: str, limits: Limits = SMALL) -> ChatTemplate:
    return ChatTemplate(source, TOKENIZER, limits=lambda units, messages: limits)


def doubled(expression: str) -> str:
    begin = "{% set ns = namespace(x='ab', l=['a'], b='ab'.encode()) %}{% for i in range(99) %}"
    return begin + "{% set " + expression + " %}{% endfor %}{{ ns.x }}"


LARGE = [
    *(
        doubled("ns.x = " + expression)
        for expression in (
            "ns.x + ns.x",
            "ns.x ~ ns.x",
            "ns.x * 2",
            "[ns.x, ns.x] | join",
            "[ns, ns] | join('', attribute='x')",
            "','.join([ns.x, ns.x])",
            "'x'.join(ns.x)",
            "'%s%s' | format(ns.x, ns.x)",
            "'%s%s' % (ns.x, ns.x)",
            "'{0}{0}'.format(ns.x)",
            "'{a}{a}'.format_map({'a': ns.x})",
            "ns.x.replace('a', 'aa')",
            "ns.x | replace('a', ns.x)",
            "ns.x.translate({97: 'aa'})",
            "ns.x.encode().hex()",
            "(ns.x | safe).join([ns.x, ns.x])",
        )
    ),
    *(
        doubled("ns.l = " + expression)
        for expression in (
            "[ns.l, ns.l]",
            "(ns.l, ns.l)",
            "{'a': ns.l, 'b': ns.l}",
            "dict(a=ns.l, b=ns.l)",
            "ns.l + ns.l",
            "[ns.l] * 2",
            "dict.fromkeys(['a', 'b'], ns.l)",
            "[ns.l, ns.l] | list",
            "[ns.l] | batch(2, ns.l) | list",
        )
    ),
    doubled("ns.b = ns.b + ns.b"),
    "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}"
    "{% set ns.x = y %}{% endfor %}",
    "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns = namespace(x='ab') %}"
    "{% for i in range(99) %}{% set ns.x = m(ns.x) %}{% endfor %}",
    "{% autoescape true %}{% set ns = namespace(x='<') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}"
    "{% endfor %}{% endautoescape %}",
    "{{ 'a' | center(99999999) }}",
    "{{ 'a'.ljust(99999999) }}",
    "{{ 'a'.zfill(width=99999999) }}",
    "{{ ('\t' * 999).expandtabs(999) }}",
    "{{ ('a'|attr('rjust'))(99999999) }}",
    "{{ ['a'] | map('center', 99999999) | list }}",
    "{{ ('\n' * 999) | indent(999) }}",
    "{{ ('\n' * 999) | indent('a' * 999) }}",
    "{{ '%99999999d' | format(1) }}",
    "{{ '%*d' | format(99999999, 1) }}",
    "{{ '%99999999d' % 1 }}",
    "{{ '%*d' % (99999999, 1) }}",
    "{{ '{:>99999999}'.format(1) }}",
    "{{ '{:{}}'.format(1, 99999999) }}",
    "{{ [1] | batch(99999999, 0) | list }}",
    "{{ [1] | slice(99999999) | list }}",
    "{{ [[1]] | tojson(indent=99999999) }}",
    "{{ [1, 2] | tojson(separators=('a' * 9999, '')) }}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, 1] %}{% endfor %}"
    "{{ ns.l | tojson(indent=60) }}",
    "{{ lipsum(9999) }}",
    "{{ (1).to_bytes(99999999, 'big') }}",
    "{{ [1] * 99999999 }}",
    "{{ (range(9999) | list) * 99 }}",
    "{% for i in range(999) %}{{ 'x' * 999 }}{% endfor %}",
    "{% for i in range(9999) %}0123456789{% endfor %}",
    "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = ns.l + ['x' * 999] %}{% endfor %}",
    "{% set x = 'x' * 9999 %}{% for i in range(9999) %}{% set y = x[1:] %}{% endfor %}",
    "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}",
    "{% macro m() %}{{ varargs | length }}{% endmacro %}"
    "{% set l = range(999) | list %}{% for i in range(9999) %}{{ m(*l) }}{% endfor %}",
    "{{ ('<' * 9999) | striptags }}{{ ('a ' * 60000) | wordwrap(1) }}",
    "{{ 'a b' | wordwrap(1, wrapstring='x' * 9999) }}",
    "{{ 9 ** 9999 }}",
    "{% set ns = namespace(x=9) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "{{ strftime_now('%d' * 999) }}",
]


@pytest.mark.parametrize("source", LARGE)
def test_nothing_large_is_made(source: str) -> None:
    with pytest.raises(TemplateError, match="was stopped: ") as caught:
        small(source).render(HI)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% endfor %}",
        "{% for a in range(99) %}{% for a in range(999) %}{% continue %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n and f(n - 1) == f(n - 1) %}{% endif %}{% endmacro %}{{ f(50) }}",
        "{% set l = range(999) | list %}{% set n = l | reject('in', l) | map('string') | select('in', l) | list %}"
        * 20,
        "{% set l = range(9999) %}{% for x in l %}{% for y in l if y is none %}{% endfor %}{% endfor %}",
    ],
)
def test_steps_are_counted(source: str) -> None:
    with pytest.raises(TemplateError, match=r"stopped: it took more than 20000 steps"):
        small(source, replace(SMALL, total_units=1 << 30)).render(HI)


@pytest.mark.parametrize(
    "source",
    [
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% block a %}{{ self.a() }}{% endblock %}",
    ],
)
def test_calls_are_not_deep(source: str) -> None:
    with pytest.raises(TemplateError, match="it calls itself more than 60 deep"):
        small(source).render(HI)


SOURCES = {
    "x" * 300_000: "it has 300000 characters, more than 262144",
    "{{ a }}" * 11_000: "it has more than 10000 expressions",
    "{% if a %}" + "{% elif a %}" * 6_000 + "{% endif %}": "it has more than 10000 expressions",
    "{{ a" + ".a" * 12_000 + " }}": "it has more than 10000 expressions",
    "{{ " + "(" * 5_000 + "1" + ")" * 5_000 + " }}": "RecursionError",
    "{% if 1 %}" * 150 + "{% endif %}" * 150: "levels of indentation",
    "{{ " + "9" * 9999 + " }}": "ValueError|stopped",  # Python 3.10's first releases read it as a number
}


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source[:20])
def test_compiling_is_bounded_too(source: str) -> None:
    template = small(source)
    for _ in range(2):
        with pytest.raises(TemplateError, match=SOURCES[source]) as caught:
            template.render(HI)
        assert "\n" not in str(caught.value)


def test_time_is_the_last_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(Meter.__init__, "__defaults__", (None, lambda: float(next(clock))))
    limits = replace(SMALL, seconds=500.0)
    assert small("{% for i in range(99) %}{{ i }}{% endfor %}", limits).render(HI)
    with pytest.raises(TemplateError, match="stopped: it took more than 500 seconds"):
        small("{% for i in range(999) %}{{ i }}{% endfor %}", limits).render(HI)


def test_threads_have_meters_of_their_own() -> None:
    template = small("{% for i in range(messages | length * 400) %}{{ loop.index % 10 }}{% endfor %}")
    lengths: dict[int, Any] = {}

    def work(number: int) -> None:
        lengths[number] = len(template.render(HI * number, adapt=False))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lengths == {number: 400 * number for number in range(1, 9)}


def test_limits_grow_with_the_conversation() -> None:
    long = [{"role": ("user", "assistant")[i % 2], "content": "word " * 400} for i in range(300)]
    source = (  # looks back from every message, and collects its text piece by piece
        "{% set ns = namespace(t='') %}{% for m in messages %}{% for n in messages[:loop.index0] %}{% if n.x %}{% endif %}"
        "{% endfor %}{% set ns.t = ns.t + m.role + m.content %}{% endfor %}{{ ns.t }}"
    )
    assert len(ChatTemplate(source, TOKENIZER).render(long)) > 300 * 2000


def test_weighing_stops_early_and_counts_shared_parts_again() -> None:
    value: Any = ["a"]
    for _ in range(200):
        value = [value, value]
    assert weigh(value, 10_000) > 10_000
    assert weigh({"a": ["bc"]}, 10_000) == weigh({"a": ["bc"]}, 10_000, {}) == 4 * meter.UNITS_OF_A_VALUE + 3


def test_known_values_are_weighed_once() -> None:
    counted = Meter(SMALL)
    messages = [{"role": "user", "content": "x" * 100}]
    before = counted.weigh(messages)
    counted.know([messages])
    messages[0]["content"] = ""  # nobody may do this; here it shows that the first weight is used
    assert counted.weigh([messages[0]]) == before == weigh([messages[0] | {"content": "x" * 100}], 10_000)
    with pytest.raises(OverLimit, match="larger than 20000"):
        counted.keep(["x" * 10_000] * 3)


PIECES = (
    *("ns.x + ns.x", "ns.x ~ i", "ns.x * i", "[ns.x, ns.l] | string", "ns.x | indent(i)", "ns.x | center(i * 99)"),
    *("'%s-%s' | format(ns.x, ns.l)", "ns.l | tojson(indent=i)", "ns.x | upper | e", "ns.x.replace('b', ns.x)"),
    *("ns.l + [ns.x]", "[ns.l] * i", "ns.l[1:] + ns.l", "{i: ns.l, 'x': ns.x}", "ns.x[i:]", "[ns.x] | join(ns.x)"),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("xl"), st.sampled_from(PIECES)), min_size=1, max_size=5))
def test_no_mixture_of_steps_makes_more_than_it_may(steps: list[tuple[str, str]]) -> None:
    body = "".join(f"{{% set ns.{name} = {piece} %}}" for name, piece in steps)
    source = f"{{% set ns = namespace(x='b', l=['b']) %}}{{% for i in range(60) %}}{body}{{% endfor %}}{{{{ ns.x }}}}"
    try:
        text = small(source).render(HI)
    except TemplateError as error:
        assert "\n" not in str(error)
    else:
        assert len(text) <= SMALL.value_units
