"""Phi-3 with a text longer than its first training's 64 tokens: long factors, a magnitude, and a head turned in part."""

from recipe import Recipe

RECIPE = Recipe(
    config="Phi3Config",
    model="Phi3ForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 512,
        "original_max_position_embeddings": 64,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.0, 1.0, 1.1, 1.2, 1.3, 1.5, 1.8, 2.0, 2.0, 2.0, 2.0, 2.0],
            "long_factor": [1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 8.0, 8.0, 8.0, 8.0],
            "original_max_position_embeddings": 64,
            "partial_rotary_factor": 0.75,
        },
    },
)
