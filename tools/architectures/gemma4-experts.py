"""Gemma 4 26B-A4B: eight experts beside each feed-forward network, two of them used; else as the 31B."""

from recipe import Recipe

RECIPE = Recipe(
    config="Gemma4TextConfig",
    model="Gemma4ForCausalLM",
    vocabulary="spm",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "num_global_key_value_heads": 2,
        "attention_k_eq_v": True,
        "head_dim": 16,
        "global_head_dim": 32,
        "layer_types": ["sliding_attention", "full_attention"],
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 288,
        "enable_moe_block": True,
        "num_experts": 8,
        "top_k_experts": 2,
        "moe_intermediate_size": 32,
        "sliding_window": 16,
        "final_logit_softcapping": 30.0,
        "max_position_embeddings": 512,
    },
)
