"""Nomic BERT: rope, gated feed-forward parts, q, k and v in one matrix.

The converter reads the configuration as Nomic published it, so those names are added to what Transformers saves.
"""

from recipe import Recipe

RECIPE = Recipe(
    config="NomicBertConfig",
    model="NomicBertModel",
    vocabulary="wordpiece",
    is_encoder=True,
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 2048,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
    },
    saved={
        "n_positions": 8192,
        "max_trained_positions": 2048,
        "activation_function": "swiglu",
        "causal": False,
        "qkv_proj_bias": False,
        "mlp_fc1_bias": False,
        "mlp_fc2_bias": False,
        "prenorm": False,
        "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False,
        "rotary_emb_scale_base": None,
        "rotary_emb_base": 1000,
    },
)
