"""Gemma 4 31B: layers that see everything have no values of their own, but take their keys for them, and fewer heads."""

from recipe import Recipe

RECIPE = Recipe(
    config="Gemma4TextConfig",
    model="Gemma4ForCausalLM",
    vocabulary="spm",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "num_global_key_value_heads": 2,
        "attention_k_eq_v": True,
        "head_dim": 16,
        "global_head_dim": 32,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 288,
        "sliding_window": 16,
        "final_logit_softcapping": 30.0,
        "max_position_embeddings": 512,
    },
)
