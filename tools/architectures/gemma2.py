"""Gemma 2: capped scores and logits, caps low enough to be felt, alternating windows of 16 tokens."""

from recipe import Recipe

RECIPE = Recipe(
    config="Gemma2Config",
    model="Gemma2ForCausalLM",
    vocabulary="spm",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 16,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0,
        "max_position_embeddings": 512,
    },
)
