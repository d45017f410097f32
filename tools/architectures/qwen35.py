"""Qwen 3.5, dense: three layers of the gated delta rule for each one of attention, two value heads for each key head."""

from recipe import Recipe

RECIPE = Recipe(
    config="Qwen3_5TextConfig",
    model="Qwen3_5ForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
    },
    converter={"no_mtp": True},
)
