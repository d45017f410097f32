"""Qwen3: normed queries and keys, heads wider than hidden / heads."""

from recipe import Recipe

RECIPE = Recipe(
    config="Qwen3Config",
    model="Qwen3ForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
    },
)
