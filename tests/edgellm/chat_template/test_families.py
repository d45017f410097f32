"""Files without a template: a known family's by name, where the vocabulary has its markers, otherwise a clear error."""

from __future__ import annotations

from typing import Any

import pytest
import tiny_vocabulary

from edgellm.chat_template import ChatTemplate, families
from edgellm.errors import TemplateError
from edgellm.tokenizer import Tokenizer

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yes?"},
    {"role": "user", "content": "Why?"},
]


def make(name: str, *tokens: str, kind: int = 3, **more: Any) -> tuple[dict[str, Any], Tokenizer]:
    """Return metadata of a model without a template whose first tokens are `tokens`."""
    metadata = tiny_vocabulary.make_bpe(512)
    del metadata["tokenizer.chat_template"]
    names = [*tokens, "<s>", "</s>", *metadata["tokenizer.ggml.tokens"][3:]][:512]
    size = len(tokens) + 2
    types = [kind] * len(tokens) + [3, 3] + [1] * 512
    metadata |= {
        "tokenizer.ggml.tokens": names,
        "tokenizer.ggml.token_type": types[: len(names)],
        "tokenizer.ggml.bos_token_id": size - 2,
        "tokenizer.ggml.eos_token_id": size - 1,
        "tokenizer.ggml.unknown_token_id": size - 1,
        "tokenizer.ggml.padding_token_id": size - 1,
        "tokenizer.ggml.add_bos_token": True,
        "general.architecture": "llama",
        "general.name": name,
        **more,
    }
    return metadata, Tokenizer(metadata)


TOKENS = {family.name: family.tokens for family in families.FAMILIES}
EXPECTED = {
    ("Qwen2.5 0.5B Instruct", "ChatML"): (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>\n"
        "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    ),
    ("Meta Llama 3.1 8B Instruct", "Llama 3"): (
        "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
        "Hi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nYes?<|eot_id|><|start_header_id|>user"
        "<|end_header_id|>\n\nWhy?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    ("Gemma 3 1b It", "Gemma"): (
        "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nYes?<end_of_turn>\n"
        "<start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n"
    ),
    ("Phi-3 mini 4k instruct", "Phi-3"): (
        "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nYes?<|end|>\n<|user|>\nWhy?<|end|>\n"
        "<|assistant|>\n"
    ),
    ("Mistral 7B Instruct v0.3", "Mistral"): ("<s>[INST] Be brief.\n\nHi[/INST] Yes?</s>[INST] Why?[/INST]"),
    ("Llama 2 7b Chat hf", "Llama 2"): (
        "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Yes? </s><s>[INST] Why? [/INST]"
    ),
    ("zephyr 7b beta", "Zephyr"): (
        "<|system|>\nBe brief.</s>\n<|user|>\nHi</s>\n<|assistant|>\nYes?</s>\n<|user|>\nWhy?</s>\n<|assistant|>\n"
    ),
}


@pytest.mark.parametrize(("name", "family"), EXPECTED)
def test_a_known_familys_template_is_used(name: str, family: str) -> None:
    metadata, tokenizer = make(name, *(t for t in TOKENS[family] if t not in ("<s>", "</s>")))
    template = ChatTemplate.find(metadata, tokenizer)
    assert template is not None and template.origin == f"the known family {family}"
    prompt = template.prompt(TALK)
    assert prompt.text == EXPECTED[name, family]
    begun = template.prompt(TALK, False).text
    assert prompt.text.startswith(begun)


def test_every_family_has_an_expected_rendering() -> None:
    assert {family for _, family in EXPECTED} == set(TOKENS)


@pytest.mark.parametrize(
    ("name", "tokens", "kind"),
    [
        ("Gemma 3 270m", TOKENS["Gemma"], 3),  # a base model: its vocabulary has the markers, too
        ("Qwen2.5 0.5B", TOKENS["ChatML"], 3),
        ("Qwen2.5 0.5B Instruct", (), 3),  # a family's name without its markers
        ("Qwen2.5 0.5B Instruct", TOKENS["ChatML"], 1),  # markers that are ordinary texts
        ("My own Instruct", TOKENS["ChatML"], 3),  # markers without a family's name: never a silent ChatML
        ("", (), 3),
    ],
)
def test_no_guess_is_made(name: str, tokens: tuple[str, ...], kind: int) -> None:
    metadata, tokenizer = make(name, *tokens, kind=kind)
    assert ChatTemplate.find(metadata, tokenizer) is None
    with pytest.raises(TemplateError, match="has no chat template and is no chat model of a known family"):
        ChatTemplate.from_metadata(metadata, tokenizer).render_ids(TALK)


def test_other_names_of_the_file_count_too() -> None:
    metadata, tokenizer = make("", *TOKENS["ChatML"], **{"general.basename": "Qwen3", "general.finetune": "Instruct"})
    assert ChatTemplate.find(metadata, tokenizer) is not None


def test_the_files_own_template_comes_first() -> None:
    metadata, tokenizer = make("Qwen2.5 0.5B Instruct", *TOKENS["ChatML"])
    template = ChatTemplate.find(metadata | {"tokenizer.chat_template": "own"}, tokenizer)
    assert template is not None and (template.origin, template.render(TALK)) == ("the model file", "own")
