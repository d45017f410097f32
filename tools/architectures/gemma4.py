"""Gemma 4 E2B: small embeddings for each layer, the last two layers without keys and values of their own, and twice as wide."""

from recipe import Recipe

RECIPE = Recipe(
    config="Gemma4TextConfig",
    model="Gemma4ForCausalLM",
    vocabulary="spm",
    options={
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "global_head_dim": 32,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
        "use_double_wide_mlp": True,
        "hidden_size_per_layer_input": 32,
        "vocab_size_per_layer_input": 288,
        "sliding_window": 16,
        "final_logit_softcapping": 30.0,
        "max_position_embeddings": 512,
    },
)
