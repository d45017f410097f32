"""Phi-3 with a window of 16 tokens. llama.cpp knows of it and sees everything all the same (its pull request 13676)."""

from recipe import Recipe

RECIPE = Recipe(
    config="Phi3Config",
    model="Phi3ForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "sliding_window": 16,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
        "original_max_position_embeddings": 512,
        "max_position_embeddings": 512,
    },
    peer_differs="llama.cpp ignores this window",
)
