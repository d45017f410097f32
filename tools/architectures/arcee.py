"""Arcee: YaRN, as AFM 4.5B has it, beside the network without gates."""

from recipe import Recipe

RECIPE = Recipe(
    config="ArceeConfig",
    model="ArceeForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 128,
        },
    },
)
