"""Render chat templates with Transformers' own code: the other side of `compare_templates.py`, in its own Python.

Reads one JSON object from standard input, {"tokens": {...}, "now": ISO time, "requests": [...]}, and writes a list of
{"text": ...} or {"error": ..., "kind": ...} in the requests' order. Needs transformers and nothing of edgellm.
"""

import datetime
import json
import sys
from typing import Any


def main() -> None:
    """Render everything that standard input asks for."""
    import transformers
    from tokenizers import Tokenizer, models
    from transformers.utils import chat_template_utils

    asked = json.load(sys.stdin)

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime.datetime:
            return datetime.datetime.fromisoformat(asked["now"])

    chat_template_utils.datetime = Clock
    names = list(asked["tokens"].values())
    vocabulary = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, names[0]))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=vocabulary, **asked["tokens"])
    answers = []
    for request in asked["requests"]:
        try:
            answers.append({"text": tokenizer.apply_chat_template(tokenize=False, **request)})
        except Exception as error:
            answers.append({"error": str(error), "kind": type(error).__name__})
    json.dump({"version": transformers.__version__, "answers": answers}, sys.stdout)


if __name__ == "__main__":
    main()
