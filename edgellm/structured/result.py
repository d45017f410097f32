"""An answer as the object that its schema is the class of. Knows Pydantic's methods by name, and does not import it."""

from __future__ import annotations

from typing import Any

from ..completion import Completion
from ..errors import AnswerError
from .schema import is_model


def result_of(completion: Completion, schema: Any) -> Any:
    """Return an instance of `schema` if that is a Pydantic model class, the completion itself otherwise.

    Raises AnswerError, which carries the text, if the answer was cut or the class's own validators refuse it.
    """
    if not is_model(schema):
        return completion
    try:
        return schema.model_validate_json(completion.text)
    except ValueError as error:
        if completion.finish_reason == "length":
            why = f"it was cut after {len(completion.token_ids)} tokens; raise max_tokens or max_context"
        else:
            why = " ".join(str(error).split())[:300]
        raise AnswerError(f"the answer is no {schema.__name__}: {why}", completion.text) from error
