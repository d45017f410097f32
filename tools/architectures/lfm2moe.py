"""LFM2 with experts behind a first dense layer; a bias of the choice alone."""

from recipe import Recipe

RECIPE = Recipe(
    config="Lfm2MoeConfig",
    model="Lfm2MoeForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "moe_intermediate_size": 32,
        "num_dense_layers": 1,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "num_hidden_layers": 4,
        "layer_types": ["conv", "full_attention", "conv", "full_attention"],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "conv_L_cache": 4,
        "max_position_embeddings": 512,
    },
)
