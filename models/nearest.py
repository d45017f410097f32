"""Which architecture that edgellm has comes nearest to one it has not: for the line that refuses a file.

Knows families by name only: a relative's file is no file that would run. Next hop: `__init__.py`, which asks.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

# What differs little from what, by the papers; a name stands for itself and for whatever begins with it.
_RELATIVES = {
    "llama": "baichuan command-r deci exaone ernie internlm2 llama4 minicpm mistral nemotron orion refact xverse yi",
    "mistral3": "mistral4 ministral pixtral devstral",
    "qwen2": "qwen dream kimi-dev",
    "qwen2moe": "dots1 llada-moe bailingmoe",
    "qwen3moe": "glm4moe hunyuan-moe minimax ernie4_5-moe",
    "phi3": "phi phimoe",
    "gemma": "gemma3n",
    "glm4": "chatglm",
    "cohere2": "command-r",
    "starcoder2": "starcoder gpt2 gptneox codeshell bloom mpt falcon",
    "deepseek2": "deepseek kimi minicpm3 plm",
    "olmo2": "olmo",
    "mamba2": "mamba",
    "granitehybrid": "jamba falcon-h1 plamo nemotron_h bamba zamba",
    "bert": "jina-bert modern-bert neo-bert t5encoder",
}


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that is most like the architecture `name`; None if none is like it."""
    known, name = list(known), name.lower()
    found = [(len(other), other) for other in known if name.startswith(other)]
    found += [
        (len(other), relative)
        for relative, names in _RELATIVES.items()
        for other in names.split()
        if relative in known and re.match(rf"{re.escape(other)}(?![a-z])", name)
    ]
    if found:
        return max(found)[1]
    return next(iter(difflib.get_close_matches(name, known, 1, 0.5)), None)
