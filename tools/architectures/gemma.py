"""Gemma: heads wider than hidden / heads, one head of keys and values, tied output."""

from recipe import Recipe

RECIPE = Recipe(
    config="GemmaConfig",
    model="GemmaForCausalLM",
    vocabulary="spm",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 512,
    },
)
