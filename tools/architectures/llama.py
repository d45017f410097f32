"""Llama, with a head size of its own."""

from recipe import Recipe

RECIPE = Recipe(
    config="LlamaConfig",
    model="LlamaForCausalLM",
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
