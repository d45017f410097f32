"""Chat templates of known families, for model files that hold none.

One is taken only where the file's names say the family and that the model was made to chat, and the vocabulary has the
family's turn markers as control tokens: base models have the markers too. Written from each family's published prompt
format; knows names and tokens, renders nothing. docs/templates.md lists them for users.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..tokenizer import Tokenizer

_NAMES = ("general.architecture", "general.name", "general.basename", "general.finetune")
_MADE_TO_CHAT = re.compile(r"\b(instruct|chat|it|assistant|zephyr|hermes|dolphin|chatml)\b")


@dataclass(frozen=True, slots=True)
class Family:
    """One prompt format. pattern: found in the file's names; tokens: control tokens the vocabulary must have."""

    name: str
    pattern: str
    tokens: tuple[str, ...]
    source: str


def find(metadata: Mapping[str, Any], tokenizer: Tokenizer) -> Family | None:
    """Return the family of a model that was made to chat, or None."""
    names = " ".join(str(metadata.get(key, "")) for key in _NAMES).lower()
    names = re.sub(r"[^a-z0-9.]+", " ", names)
    if _MADE_TO_CHAT.search(names) is None:
        return None
    controls = set(tokenizer.guarded_texts)
    for family in FAMILIES:
        if re.search(rf"\b(?:{family.pattern})", names) and controls.issuperset(family.tokens):
            return family
    return None


_ANSWER = "{% if add_generation_prompt %}"


def _turns(before: str, after: str, answer: str, roles: str = "m.role") -> str:
    return (
        f"{{{{ bos_token }}}}{{% for m in messages %}}{{{{ {before!r} | replace('ROLE', {roles}) }}}}"
        f"{{{{ m.content | trim }}}}{{{{ {after!r} }}}}{{% endfor %}}{_ANSWER}{{{{ {answer!r} }}}}{{% endif %}}"
    )


_CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    + _ANSWER
    + "{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_LLAMA_3 = _turns(
    "<|start_header_id|>ROLE<|end_header_id|>\n\n", "<|eot_id|>", "<|start_header_id|>assistant<|end_header_id|>\n\n"
)
_PHI_3 = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endfor %}"
    + _ANSWER
    + "{{ '<|assistant|>\\n' }}{% endif %}"
)
_ZEPHYR = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + eos_token + '\\n' }}{% endfor %}"
    + _ANSWER
    + "{{ '<|assistant|>\\n' }}{% endif %}"
)
_ALTERNATE = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) or m.role not in ['user', 'assistant'] %}"
    "{{ raise_exception('roles must alternate: user, assistant, user') }}{% endif %}{% endfor %}"
)
_GEMMA = _ALTERNATE + _turns(
    "<start_of_turn>ROLE\n",
    "<end_of_turn>\n",
    "<start_of_turn>model\n",
    "'model' if m.role == 'assistant' else m.role",
)
_MISTRAL = (
    _ALTERNATE + "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}"
    "{{ '[INST] ' + m.content + '[/INST]' }}{% else %}{{ ' ' + m.content | trim + eos_token }}{% endif %}{% endfor %}"
)
_LLAMA_2 = (
    "{% set system = messages[0].content if messages[0].role == 'system' else none %}"
    "{% set turns = messages if system is none else messages[1:] %}"
    + _ALTERNATE.replace("in messages", "in turns")
    + ""
    "{% for m in turns %}{% if m.role == 'user' %}{{ bos_token + '[INST] ' }}"
    "{% if loop.first and system is not none %}{{ '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' }}{% endif %}"
    "{{ m.content | trim + ' [/INST]' }}{% else %}{{ ' ' + m.content | trim + ' ' + eos_token }}{% endif %}{% endfor %}"
)

FAMILIES = (
    Family("Llama 3", r"(?:meta )?llama ?3", ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), _LLAMA_3),
    Family("Gemma", r"gemma(?! ?4)", ("<start_of_turn>", "<end_of_turn>"), _GEMMA),
    Family("Phi-3", r"phi ?3", ("<|user|>", "<|assistant|>", "<|end|>"), _PHI_3),
    Family("ChatML", r"qwen|smollm|hermes|dolphin|internlm ?2|yi |chatml", ("<|im_start|>", "<|im_end|>"), _CHATML),
    Family("Mistral", r"mistral", ("[INST]", "[/INST]"), _MISTRAL),
    Family("Zephyr", r"zephyr", ("</s>",), _ZEPHYR),
    Family("Llama 2", r"(?:meta )?llama ?2", ("<s>", "</s>"), _LLAMA_2),
)
