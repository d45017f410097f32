"""Checks of what an answer must look like: types, and one form at most. Whether a schema or grammar is sound is not known
here but in `structured`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .errors import OptionError

if TYPE_CHECKING:
    from .config_sampling import SamplingParams

FORMS = ("json", "schema", "regex", "grammar", "choices")


def check_form(params: SamplingParams) -> None:
    """Raise OptionError for a wrong type, an empty choice or two forms at once; choices become a tuple."""
    if not isinstance(params.json, bool):
        raise OptionError(f"json must be true or false, not {params.json!r}; a schema is given as schema=")
    for name in ("regex", "grammar"):
        value = getattr(params, name)
        if value is not None and (not isinstance(value, str) or not value):
            raise OptionError(f"{name} must be a non-empty text, not {value!r}")
    _check_schema(params.schema)
    object.__setattr__(params, "choices", _check_choices(params.choices))
    given = [name for name in FORMS if getattr(params, name) not in (None, False, ()) or _is_given(params, name)]
    if len(given) > 1:
        raise OptionError(f"{given[1]} cannot be combined with {given[0]}: an answer has one form")


def _is_given(params: SamplingParams, name: str) -> bool:
    return name == "schema" and params.schema is not None  # false is a schema, too


def _check_schema(schema: object) -> None:
    is_class = isinstance(schema, type) and hasattr(schema, "model_json_schema")
    if schema is not None and not is_class and not isinstance(schema, (str, bool, Mapping)):
        kind = f"the class {schema.__name__}" if isinstance(schema, type) else type(schema).__name__
        raise OptionError(f"schema must be a JSON Schema (dict or JSON text) or a Pydantic model class, not {kind}")


def _check_choices(choices: Any) -> tuple[str, ...]:
    if isinstance(choices, (str, bytes)):
        raise OptionError(f"choices must be a list of texts, not the one text {choices!r}")
    try:
        texts = tuple(choices)
    except TypeError:
        raise OptionError(f"choices must be a list of texts, not {type(choices).__name__}") from None
    if not texts and choices != ():
        raise OptionError("choices is empty; give at least one text")
    for text in texts:
        if not isinstance(text, str) or not text:
            raise OptionError(f"choices must hold non-empty texts, not {text!r}")
    return texts
