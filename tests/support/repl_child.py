"""`python repl_child.py '{"script": [...]}' [OPTIONS]`: `edgellm chat` with a model that says what it is told, for tests.

The JSON's keys are attributes of FakeLLM; in `script`, a number is a wait in seconds.
"""

from __future__ import annotations

import json
import sys

from fake_llm import FakeLLM

from edgellm.cli import loading, main

if __name__ == "__main__":
    llm = FakeLLM()
    for name, value in json.loads(sys.argv[1]).items():
        setattr(llm, name, value)
    loading.load_llm = llm.load  # type: ignore[assignment]
    code = main(["chat", *sys.argv[2:]])
    print(f"prompts: {json.dumps(llm.prompts)}", file=sys.stderr)
    sys.exit(code)
