"""How large the result of a text method or filter would be, asked before it is made.

Jinja bounds `range` and nothing else: a width, a repeated text or a format can ask for gigabytes in one expression.
Knows methods and filters by their names; `meter.py` compares with what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .meter import Meter, OverLimit, weigh

Arguments = Sequence[Any]
Options = Mapping[str, Any]
Growth = Callable[[Any, Arguments, Options], int]

MAX_SLOW = 1 << 16  # characters given to filters that are slow or square; no model's template uses them
MAX_SEARCH = 1 << 30  # compared characters of a search from the right, which can be as long as both texts multiplied
SLOW_FILTERS = frozenset(("striptags", "urlize", "wordwrap", "xmlattr", "pprint", "sum", "round"))
SEARCHES = frozenset(("rfind", "rindex", "rsplit", "rpartition"))
_ENOUGH = 1 << 40


def check_method(meter: Meter, name: str, owner: Any, args: Arguments, options: Options) -> None:
    """Refuse a method of a text, list or number whose result would be too large."""
    _check_numbers(meter, args, options)
    if isinstance(owner, (str, bytes)):
        if name in SEARCHES and args and isinstance(args[0], (str, bytes)) and len(owner) * len(args[0]) > MAX_SEARCH:
            raise OverLimit(f"it searches a text of {len(owner)} characters for one of {len(args[0])}")
        if (growth := _METHODS.get(name)) is not None:
            meter.expect(growth(owner, args, options))


def check_filter(meter: Meter, name: str, value: Any, args: Arguments, options: Options) -> None:
    """Refuse a filter whose result would be too large."""
    _check_numbers(meter, args, options)
    if (growth := _FILTERS.get(name)) is not None:
        meter.expect(growth(value, args, options))
    if name in SLOW_FILTERS:
        given = weigh([args, dict(options)], MAX_SLOW)
        if weigh(value, MAX_SLOW) > MAX_SLOW or given > 1024 or any(_number(n) > 1024 for n in args):
            raise OverLimit(f"the filter {name} is given more than {MAX_SLOW} characters")


def check_format(meter: Meter, form: Any, args: Any) -> None:
    """Refuse `%` or `format` whose result would be too large."""
    meter.expect(_formatted(form, (args,), {}))


def _check_numbers(meter: Meter, args: Arguments, options: Options) -> None:
    for value in (*args, *options.values()):
        if isinstance(value, int) and abs(value) > meter.limits.value_units:
            raise OverLimit(f"it uses a width or count of more than {meter.limits.value_units}")


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _option(args: Arguments, options: Options, place: int, name: str, default: Any) -> Any:
    return args[place] if len(args) > place else options.get(name, default)


def _width(text: Any, args: Arguments, options: Options) -> int:
    return max((_number(value) for value in (*args, *options.values())), default=80)


def _tabs(text: Any, args: Arguments, options: Options) -> int:
    tab = b"\t" if isinstance(text, bytes) else "\t"
    return int(text.count(tab)) * abs(_number(_option(args, options, 0, "tabsize", 8)))


def _replaced(text: Any, args: Arguments, options: Options) -> int:
    text = text if isinstance(text, (str, bytes)) else str(text)
    old, new = _option(args, options, 0, "old", ""), _option(args, options, 1, "new", "")
    if not isinstance(old, type(text)) or not isinstance(new, type(text)):
        return 0 if not isinstance(text, str) else len(text) * (len(str(new)) + 1)
    return len(text) + int(text.count(old)) * len(new)  # type: ignore[arg-type]


def _translated(text: Any, args: Arguments, options: Options) -> int:
    table = args[0] if args else {}
    values = table.values() if isinstance(table, dict) else ()
    return len(text) * max((len(v) for v in values if isinstance(v, str)), default=1)


def _formatted(form: Any, args: Arguments, options: Options) -> int:
    form = str(form)
    widths = sum(min(int(digits[:12]), _ENOUGH) for digits in re.findall(r"[0-9]+", form))
    fields = form.count("%") + form.count("{")
    given = weigh([args, dict(options)], _ENOUGH)
    if "*" in form or "{" in form:  # a width may be given as an argument
        given += max(map(_number, _flat([args, dict(options)])), default=0)
    return len(form) + widths + fields * given


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [item for part in value for item in _flat(part)]
    return [value]


def _indented(text: Any, args: Arguments, options: Options) -> int:
    width = _option(args, options, 0, "width", 4)
    size = len(width) if isinstance(width, str) else abs(_number(width))
    text = str(text)
    return len(text) + (text.count("\n") + 1) * size


_METHODS: dict[str, Growth] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _width),
    "expandtabs": _tabs,
    "replace": _replaced,
    "translate": _translated,
    "format": _formatted,
    "format_map": _formatted,
}
_FILTERS: dict[str, Growth] = {
    "center": _width,
    "replace": _replaced,
    "format": _formatted,
    "indent": _indented,
}
