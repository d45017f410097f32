"""Granite 3, with its four multipliers."""

from recipe import Recipe

RECIPE = Recipe(
    config="GraniteConfig",
    model="GraniteForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "num_hidden_layers": 2,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.125,
        "residual_multiplier": 0.22,
        "logits_scaling": 2.0,
        "attention_bias": True,
    },
)
