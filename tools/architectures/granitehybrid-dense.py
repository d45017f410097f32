"""Granite 4 hybrid without experts, as its small models are: a dense network in each layer."""

from recipe import Recipe

RECIPE = Recipe(
    config="GraniteMoeHybridConfig",
    model="GraniteMoeHybridForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 64,
        "shared_intermediate_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_local_experts": 0,
        "num_experts_per_tok": 0,
        "layer_types": ["linear_attention", "linear_attention", "attention", "linear_attention"],
        "mamba_n_heads": 8,
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
