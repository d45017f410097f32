"""Gemma 3: seven layers, of which the sixth sees everything and the others 16 tokens."""

from recipe import Recipe

RECIPE = Recipe(
    config="Gemma3TextConfig",
    model="Gemma3ForCausalLM",
    vocabulary="spm",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 7,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 16,
        "max_position_embeddings": 512,
    },
)
