"""Qwen2: biases of queries, keys and values, tied output."""

from recipe import Recipe

RECIPE = Recipe(
    config="Qwen2Config",
    model="Qwen2ForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
    },
)
