"""Granite with experts and a shared one."""

from recipe import Recipe

RECIPE = Recipe(
    config="GraniteMoeSharedConfig",
    model="GraniteMoeSharedForCausalLM",
    options={
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "num_local_experts": 8,
        "num_experts_per_tok": 3,
        "intermediate_size": 64,
        "shared_intermediate_size": 96,
        "embedding_multiplier": 3.0,
        "logits_scaling": 2.0,
        "residual_multiplier": 0.5,
        "attention_multiplier": 0.125,
    },
)
