"""A tiny model file that recites: it calls get_weather where it may, and tells of the weather once it has the result.

The network is a real one, computed by the real kernels; attention and feed-forward add nothing to it, so the last token alone
says which comes next. Every token of what it recites occurs once, and the chat template ends a prompt with one of two tokens
that begin a recital.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tiny_models import write_tiny
from tiny_vocabulary import USER_DEFINED, make_bpe

CALL = ("<tool_call>\n", '{"name": "get_weather", ', '"arguments": {"city": ', '"Paris"}}', "\n</tool_call>")
TEXT = ("It is ", "mild ", "in ", "Paris.")
VOCAB, HIDDEN, END = 320, 32, 2
TEMPLATE = (
    "{% if tools %}<|im_start|>system\n<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools><|im_end|>\n"
    "{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if tools and messages[-1].role != 'tool' %}<|begin_call|>{% else %}<|begin_text|>{% endif %}{% endif %}"
)


def write_reciting(path: Path, is_endless: bool = False, context: int = 2048) -> Path:
    """Write the model and return its path. is_endless: it says its text again and again."""
    metadata = make_bpe(VOCAB)
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    spoken = [("<|begin_call|>", *CALL), ("<|begin_text|>", *TEXT)]
    first = VOCAB - sum(map(len, spoken))
    embedding, output = np.zeros((2, VOCAB, HIDDEN), np.float32)
    token, direction = first, 0
    for texts in spoken:
        for i, text in enumerate(texts):
            tokens[token], types[token] = text, USER_DEFINED if i else types[0]
            embedding[token, direction] = 1.0
            after = token + 1 if i + 1 < len(texts) else token + 2 - len(texts) if is_endless else END
            output[after, direction] = 5.0  # times the norm's sqrt(HIDDEN): certain
            token, direction = token + 1, direction + 1
    tensors = {
        "token_embd.weight": embedding,
        "output.weight": output,
        "output_norm.weight": np.ones(HIDDEN, np.float32),
    }
    for i in range(2):
        tensors[f"blk.{i}.attn_output.weight"] = np.zeros((HIDDEN, HIDDEN), np.float32)
        tensors[f"blk.{i}.ffn_down.weight"] = np.zeros((HIDDEN, 64), np.float32)
    metadata["tokenizer.chat_template"] = TEMPLATE
    sizes = {"hidden": HIDDEN, "ffn": 64, "vocab": VOCAB, "context": context}
    return write_tiny(path, **sizes, tied=False, metadata=metadata, tensors=tensors)
