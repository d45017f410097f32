"""Mistral 7B and its like, which GGUF calls llama; without the window of the first one, see mistral-window."""

from recipe import Recipe

RECIPE = Recipe(
    config="MistralConfig",
    model="MistralForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
    },
)
