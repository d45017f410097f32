"""Granite 4 hybrid: Mamba 2, and one layer of attention without rope; experts and a shared one."""

from recipe import Recipe

RECIPE = Recipe(
    config="GraniteMoeHybridConfig",
    model="GraniteMoeHybridForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 32,
        "shared_intermediate_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "layer_types": ["linear_attention", "linear_attention", "attention", "linear_attention"],
        "mamba_n_heads": 4,
        "mamba_d_state": 32,
        "mamba_chunk_size": 64,
        "embedding_multiplier": 12.0,
        "logits_scaling": 0.5,
        "residual_multiplier": 0.22,
        "attention_multiplier": 0.0625,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
    },
    saved={"layer_types": ["mamba", "mamba", "attention", "mamba"]},
)
