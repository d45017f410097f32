"""What went wrong, as OpenAI's error objects. Next hop: `app.py` answers with them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from ..config import SamplingParams
from ..errors import (
    AnswerError,
    ContextError,
    DownloadError,
    EdgeLLMError,
    OptionError,
    ResourceError,
    TemplateError,
    UnsupportedError,
)

USERS_FAULT = (OptionError, ContextError, TemplateError, UnsupportedError, AnswerError)

MAX_MESSAGE = 600
_NAME = re.compile(r"[a-z_]+(\.[a-z_.]*[a-z_])?(?=[ \[:]|$)")
_OPTIONS = {field.name for field in fields(SamplingParams)} | {"messages", "tools", "tool_choice", "response_format"}
_CALLS = {"grammar": ("grammar", "tools")}  # tools that are strict are a grammar
_FORMS = {"schema": ("response_format", "json_schema"), "json": ("response_format",)} | _CALLS
NAMES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "/v1/chat/completions": _FORMS,
    "/v1/completions": {**_FORMS, "messages": ("prompt",)},
    "/v1/responses": {
        **dict.fromkeys(("schema", "json", "response_format"), ("text", "json_schema")),
        **_CALLS,
        "messages": ("input",),
        "max_tokens": ("max_output_tokens",),
    },
    "/v1/embeddings": {"messages": ("input",)},
    "/detokenize": {"messages": ("tokens",)},
    "/api/chat": {"schema": ("format",), "max_tokens": ("num_predict",), **_CALLS},
    "/api/generate": {"schema": ("format",), "max_tokens": ("num_predict",), "messages": ("prompt",)},
    "/api/embed": {"messages": ("input",)},
    "/api/embeddings": {"messages": ("prompt",)},
}
"""{route: {name of an option: names of the fields that it may come from}}, where they differ."""


class ApiError(Exception):
    """An answer that is an error. status: of HTTP. param: the field at fault. code: for programs. headers: sent along."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.headers = status, message, param, code, headers

    def named_as(self, names: Mapping[str, tuple[str, ...]], given: Collection[str]) -> ApiError:
        """The same with the name that the field has in a request. names: {ours: theirs}. given: the fields of the request."""
        ours, dot, rest = (self.param or "").partition(".")
        if ours not in names:
            return self
        theirs = next((name for name in names[ours] if name in given), names[ours][0])
        message = theirs + self.message.removeprefix(ours) if self.message.startswith(f"{ours} ") else self.message
        return ApiError(self.status, message, param=theirs + dot + rest, code=self.code, headers=self.headers)

    def as_dict(self) -> dict[str, Any]:
        """The body of the answer."""
        kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
        kind = kinds.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}

    def body_for(self, path: str) -> dict[str, Any]:
        """The body of the answer on a route: Ollama's clients read a text where OpenAI's read an object."""
        return {"error": self.message} if path.startswith("/api/") else self.as_dict()


def bad(param: str, value: Any, wanted: str) -> ApiError:
    """A field that is not what it must be."""
    shown = " ".join(repr(value).split())
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return ApiError(400, f"{param} is {shown}, but must be {wanted}", param=param)


def client_gone() -> ApiError:
    """Nobody hears this; the log of a proxy may. The status is nginx's."""
    return ApiError(499, "the client is gone")


def from_error(error: BaseException) -> ApiError:
    """What an error of edgellm's means to who asked; anything else is a bug, whose text stays here."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ContextError):
        # llama-server's words first: LiteLLM and others know by them, not by the code, that a prompt is too long.
        message = f"the request exceeds the available context size: {_line(error)}"
        return ApiError(400, message, param="messages", code="context_length_exceeded")
    if isinstance(error, USERS_FAULT):
        is_of_prompt = isinstance(error, TemplateError) or str(error).startswith(("token id ", "the prompt "))
        default = "messages" if is_of_prompt else None
        return ApiError(400, _line(error), param=_named(error) or default)
    if isinstance(error, DownloadError):
        return ApiError(404, str(error), param="model", code="model_not_found")
    if isinstance(error, ResourceError):
        return ApiError(503, str(error), headers={"Retry-After": "1"})
    if isinstance(error, EdgeLLMError):
        return ApiError(500, str(error))
    return ApiError(500, "the server failed at this request; its log says how")


def _line(error: BaseException) -> str:
    """An error may quote what it was given, which may be long."""
    line = " ".join(str(error).split())
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE // 2]} ... {line[-MAX_MESSAGE // 2 :]}"


def _named(error: BaseException) -> str | None:
    """Messages of options begin with their names."""
    found = _NAME.match(str(error))
    return found[0] if found and found[0].split(".")[0] in _OPTIONS else None
