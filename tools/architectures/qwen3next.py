"""Qwen3-Next: as Qwen 3.5, but value heads that share a key head lie side by side, and so do beta and alpha."""

from recipe import Recipe

RECIPE = Recipe(
    config="Qwen3NextConfig",
    model="Qwen3NextForCausalLM",
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
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 64,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "max_position_embeddings": 512,
    },
    converter={"no_mtp": True},
)
