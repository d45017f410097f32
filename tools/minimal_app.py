"""The smallest application on edgellm: load a model, continue a text by five tokens, print JSON. For trying bundles.

    python tools/minimal_app.py model.gguf
    pyinstaller tools/minimal_app.py ...       docs/desktop.md has the whole command; tests/tools/test_bundle.py runs it

Knows the public API only. `seconds` counts from the first import to the last token; `modules` names those of Numba's
family that were imported: a bundle with kernels loads llvmlite alone.
"""

from __future__ import annotations

import json
import sys
import time

started_s = time.perf_counter()

from edgellm import LLM, EdgeLLMError  # noqa: E402  (what its import costs is part of what is measured)


def main(arguments: list[str]) -> int:
    """Run with a model's path and, if wanted, a text; return the exit code."""
    if not 1 <= len(arguments) <= 2:
        print("usage: minimal_app MODEL [TEXT]", file=sys.stderr)
        return 2
    try:
        with LLM.load(arguments[0], threads=2, max_context=64) as llm:
            text = arguments[1] if len(arguments) == 2 else "Once upon a time"
            done = llm.generate(text, max_tokens=5, temperature=0, ignore_eos=True)
    except EdgeLLMError as error:
        print(f"minimal_app: {error}", file=sys.stderr)
        return 1
    modules = sorted({"numba", "llvmlite"} & set(sys.modules))
    seconds = round(time.perf_counter() - started_s, 3)
    print(json.dumps({"token_ids": done.token_ids, "text": done.text, "seconds": seconds, "modules": modules}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
