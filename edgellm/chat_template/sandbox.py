"""Jinja with the names Transformers offers to chat templates, where a template can neither run code nor run away.

Immutable sandbox, no loader, every operation metered. Knows Jinja; knows nothing of messages and models. The names come
from the documentation of Transformers' chat templates. Imported only when a template is first used: Jinja takes 150 ms
to import. Next hops: `generated.py` for what the sandbox cannot intercept, `meter.py`, `growth.py`, `marked.py`.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro, markup_join, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, generate_lorem_ipsum

from . import growth, marked
from .generated import MeteredCode
from .meter import METER, Meter, OverLimit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jinja2 import Template

MAX_SOURCE = 1 << 18  # characters; the longest template of llama.cpp's collection has 17,000
MAX_NODES = 10_000  # of the syntax tree; the longest template there has 1,300, and 0.2 s of compiling
MAX_SEPARATOR = 64

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gteq": operator.ge,
    "lt": operator.lt,
    "lteq": operator.le,
    "in": lambda a, b: a in b,
    "notin": lambda a, b: a not in b,
}
# Where Jinja hands one of these to a filter first, it is no value of the template.
_PASSES = "jinja_pass_arg"


class Refusal(Exception):
    """The template called raise_exception. No ValueError: some filters swallow those."""


class Environment(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox with every call, filter, operator and loop counted by the render's meter."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))
    code_generator_class = MeteredCode

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[Generation, loopcontrols],
            optimized=False,  # or constant expressions would be computed while compiling
            finalize=_written,
        )
        self.filters["tojson"] = _to_json
        for name, function in list(self.filters.items()):
            self.filters[name] = _metered_filter(name, function)
        for name, test in list(self.tests.items()):
            self.tests[name] = _metered_test(test)
        self.globals |= {
            "raise_exception": _raise_exception,
            "namespace": TemplateNamespace,
            "dict": TemplateDict(),
            "lipsum": _lipsum,
        }

    def tick(self) -> None:
        """Count one turn of a loop."""
        METER.get().step()

    def made(self, value: Any) -> Any:
        """Count a list, tuple, mapping or slice that an expression made."""
        return METER.get().keep(value)

    def join_parts(self, context: Context, parts: tuple[Any, ...]) -> str:
        """Join the operands of `~`."""
        meter = METER.get()
        meter.step()
        texts = [part if isinstance(part, str) else str(part) for part in parts]
        meter.expect(sum(map(len, texts)))
        escaped = context.eval_ctx.autoescape or context.eval_ctx.volatile
        joined: str = meter.keep(markup_join(parts) if escaped else str_join(texts))
        return joined

    def concat(self, parts: Iterable[str]) -> str:  # type: ignore[override]
        """Join what a macro or a block wrote."""
        meter, texts, size = METER.get(), [], 0
        for part in parts:
            size += len(part)
            meter.expect(size)
            texts.append(part)
        joined: str = meter.keep("".join(texts))
        return joined

    def compare(self, name: str, left: Any, right: Any) -> Any:
        """Compare; user text counts as what it says."""
        if (marks := METER.get().marks) is not None:
            left, right = marks.plain(left), marks.plain(right)
        return _COMPARE[name](left, right)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator whose result can be large."""
        meter = METER.get()
        meter.step()
        if operator == "%" and isinstance(left, (str, bytes)):
            growth.check_format(meter, left, right)
        elif operator == "*":
            for value, count in ((left, right), (right, left)):
                if hasattr(value, "__len__") and isinstance(count, int) and count > 0:
                    meter.expect(meter.weigh(value) * count)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            meter.expect_bits(left.bit_length() * abs(right))
        return meter.keep(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a macro, a function or a method."""
        meter = METER.get()
        meter.step()
        meter.charge(8 * (len(args) + len(kwargs)))
        owner = getattr(__obj, "__self__", None)
        if owner is not None and not isinstance(__obj, Macro):
            name = str(getattr(__obj, "__name__", ""))
            growth.check_method(meter, name, owner, args, kwargs)
            if isinstance(owner, str):
                if name == "join":
                    args = (_joinable(meter, owner, args[0]), *args[1:]) if args else args
                if meter.marks is not None and __self.is_safe_callable(__obj):
                    # Jinja hands the variables of a loop and of a block along with every call: they are its own.
                    given = {k: v for k, v in kwargs.items() if k not in ("_loop_vars", "_block_vars")}
                    return meter.keep(marked.call(meter.marks, __obj, owner, name, args, given))
        meter.enter()
        try:
            return meter.keep(super().call(__context, __obj, *args, **kwargs))
        finally:
            meter.leave()

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Measure what `format` would make; Jinja keeps it from reaching attributes."""
        function = super().wrap_str_format(value)
        if function is None:
            return None

        def measured(*args: Any, **kwargs: Any) -> Any:
            growth.check_method(METER.get(), "format", value.__self__, args, kwargs)
            return function(*args, **kwargs)

        return measured


class Generation(Extension):
    """`{% generation %}` marks the assistant's text for training; here its content is all that matters.

    Its body has a scope of its own, as in Transformers: what is set inside is not known outside.
    """

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it as an instance variable)

    def parse(self, parser: Parser) -> nodes.Node:
        """Read the block."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Callable[[], str]) -> str:
        return caller()


class TemplateNamespace(Namespace):
    """Jinja's namespace without names that begin with an underscore, as in Transformers."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, given = args[0], dict(*args[1:], **kwargs)
        Namespace.__init__(self)
        for name, value in given.items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(f"a namespace keeps no name that begins with an underscore: {name!r:.40}")
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"  # its content can hold itself


class TemplateDict:
    """What templates call as `dict`."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """Make a mapping."""
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        """Make a mapping of equal values."""
        return dict.fromkeys(keys, value)


@functools.cache
def get_environment() -> Environment:
    """Return the environment of all templates; it holds nothing of any of them."""
    return Environment()


def compile_template(source: str, now: Callable[[], datetime]) -> Template:
    """Compile a template. Raises OverLimit, and whatever Jinja and Python raise for a wrong one."""
    if len(source) > MAX_SOURCE:
        raise OverLimit(f"it has {len(source)} characters, more than {MAX_SOURCE}")

    def strftime_now(form: str) -> str:
        if len(form) > MAX_SEPARATOR * 4:
            raise OverLimit(f"it asks for a date in a form of {len(form)} characters")
        return now().strftime(form)

    tree = get_environment().parse(source)
    if _has_more_nodes(tree, MAX_NODES):
        raise OverLimit(f"it has more than {MAX_NODES} expressions and statements")
    return get_environment().from_string(tree, globals={"strftime_now": strftime_now})


def _has_more_nodes(tree: nodes.Node, limit: int) -> bool:
    rest: list[nodes.Node] = [tree]
    while rest and limit:
        rest.extend(rest.pop().iter_child_nodes())
        limit -= 1
    return bool(rest)


def run(template: Template, names: Mapping[str, Any], meter: Meter) -> str:
    """Return what a template writes. Raises Refusal, OverLimit, and whatever a stranger's template raises."""
    with metered(meter):
        meter.know(names.values())
        return template.environment.concat(template.root_render_func(template.new_context(dict(names))))  # type: ignore[no-any-return, unused-ignore]


@contextmanager
def metered(meter: Meter) -> Iterator[None]:
    """Make a meter the one that is asked in this thread."""
    token = METER.set(meter)
    try:
        yield
    finally:
        METER.reset(token)


@pass_context
def _written(context: Context, value: Any) -> Any:
    """Turn what an expression gives into text, counted."""
    return METER.get().keep(value if isinstance(value, str) else str(value))


def _raise_exception(message: object) -> NoReturn:
    raise Refusal(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes for HTML and sorts keys; templates are written for this one."""
    wide = (len(part) if isinstance(part, str) else abs(part or 0) for part in (indent, *(separators or ())))
    if max(wide) > MAX_SEPARATOR:
        raise OverLimit(f"it writes JSON with more than {MAX_SEPARATOR} characters between two values")
    meter = METER.get()
    plain_ascii = ensure_ascii and meter.marks is None
    encoder = json.JSONEncoder(ensure_ascii=plain_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    if indent is None:
        text = encoder.encode(value)
    else:
        parts, size = [], 0
        for part in encoder.iterencode(value):  # each value is indented as deep as it lies
            size += len(part)
            meter.expect(size)
            parts.append(part)
        text = "".join(parts)
    return marked.escape_json(meter.marks, text) if ensure_ascii and meter.marks is not None else text


def _lipsum(n: int = 5, html: bool = True, min: int = 20, max: int = 100) -> str:
    if n * max > 10_000:
        raise OverLimit("it asks for more than 10000 words of filling")
    return generate_lorem_ipsum(n, html, min, max)


def _joinable(meter: Meter, separator: Any, values: Iterable[Any]) -> list[Any]:
    """Return values that can be joined without growing too large; they may come from a generator."""
    values = list(values)
    meter.expect(sum(len(v) for v in values if isinstance(v, str)) + len(str(separator)) * len(values))
    return values


def _metered_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    passed = 1 if hasattr(function, _PASSES) else 0

    @functools.wraps(function)
    def metered(*args: Any, **kwargs: Any) -> Any:
        meter = METER.get()
        meter.step()
        first, values = args[:passed], args[passed:]
        if values:
            growth.check_filter(meter, name, values[0], values[1:], kwargs)
            if name == "join":
                values, kwargs = _join_arguments(meter, first[0].environment, values, kwargs)
            if meter.marks is not None and (result := marked.filter(meter.marks, name, values, kwargs)) is not None:
                return meter.keep(result)
        return meter.keep(function(*first, *values, **kwargs))

    return metered


def _join_arguments(
    meter: Meter, environment: Any, values: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Take the attributes that are to be joined, so that their lengths are known, and leave the rest."""

    def join(value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> tuple[Iterable[Any], str]:
        return (value if attribute is None else map(make_attrgetter(environment, attribute), value)), d

    items, separator = join(*values, **options)
    return (_joinable(meter, separator, (v if isinstance(v, str) else str(v) for v in items)), separator), {}


def _metered_test(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def metered(*args: Any, **kwargs: Any) -> Any:
        meter = METER.get()
        meter.step()
        if meter.marks is not None:
            args = tuple(map(meter.marks.plain, args))
        return function(*args, **kwargs)

    return metered
