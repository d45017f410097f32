"""What went wrong, as OpenAI's error objects. Next hop: `app.py` answers with them."""

from __future__ import annotations

from typing import Any

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


def from_error(error: BaseException) -> ApiError:
    """What an error of edgellm's means to who asked; anything else is a bug, whose text stays here."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ContextError):
        # llama-server's words first: LiteLLM and others know by them, not by the code, that a prompt is too long.
        message = f"the request exceeds the available context size: {error}"
        return ApiError(400, message, param="messages", code="context_length_exceeded")
    if isinstance(error, USERS_FAULT):
        return ApiError(400, str(error), param=_named(error))
    if isinstance(error, DownloadError):
        return ApiError(404, str(error), param="model", code="model_not_found")
    if isinstance(error, ResourceError):
        return ApiError(503, str(error), headers={"Retry-After": "1"})
    if isinstance(error, EdgeLLMError):
        return ApiError(500, str(error))
    return ApiError(500, "the server failed at this request; its log says how")


def _named(error: BaseException) -> str | None:
    """Messages of options begin with their names."""
    first = str(error).split(" ", 1)[0]
    return first if first.replace("_", "").replace(".", "").isalnum() and first.islower() else None
