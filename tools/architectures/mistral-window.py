"""Mistral 7B v0.1 with a window of 16 tokens. llama.cpp's converter leaves it out, and llama.cpp would not read it."""

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
        "sliding_window": 16,
        "max_position_embeddings": 512,
    },
    metadata={"llama.attention.sliding_window": 16},
    peer_differs="llama.cpp does not read this window",
)
