"""The errors edgellm raises. Each message says what is wrong, the value, the limit and the way out, in one line.

`except EdgeLLMError` catches everything that is the user's, the file's or the network's doing; anything else is a bug.
"""


class EdgeLLMError(Exception):
    """Base of every error edgellm raises on purpose."""


class OptionError(EdgeLLMError, ValueError):
    """An argument or option is out of range or of the wrong type."""


class ModelFileError(EdgeLLMError):
    """A model file is damaged, truncated, inconsistent or not GGUF."""


class UnsupportedError(EdgeLLMError):
    """The file is sound, but uses an architecture, format or setting edgellm does not know."""


class ContextError(EdgeLLMError, ValueError):
    """A prompt does not fit into the context."""


class ResourceError(EdgeLLMError):
    """The machine lacks what was asked for: memory, a device, a writable folder."""


class StateError(EdgeLLMError):
    """A saved state is damaged, or of another model or other settings."""


class DownloadError(EdgeLLMError):
    """A model cannot be found or fetched."""


class TemplateError(EdgeLLMError, ValueError):
    """A chat template refuses the conversation or cannot be rendered."""


class AnswerError(EdgeLLMError):
    """An answer is not what was asked for, as when it was cut before its JSON was complete. text: the answer."""

    def __init__(self, message: str, text: str = "") -> None:
        super().__init__(message)
        self.text = text
