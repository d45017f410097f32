"""LFM2: short convolutions, and one layer of attention for two of them."""

from recipe import Recipe

RECIPE = Recipe(
    config="Lfm2Config",
    model="Lfm2ForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "block_auto_adjust_ff_dim": False,
        "num_hidden_layers": 4,
        "layer_types": ["conv", "full_attention", "conv", "conv"],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "conv_L_cache": 3,
        "max_position_embeddings": 512,
    },
)
