"""EmbeddingGemma: Gemma 3 with both directions, six layers that see 8 tokens to either side and one that sees all.

Transformers halves the window of such a model and adds one when it reads a configuration, and saves that; the converter wants
the published one.
"""

from recipe import Recipe

RECIPE = Recipe(
    config="Gemma3TextConfig",
    model="Gemma3TextModel",
    vocabulary="spm",
    is_encoder=True,
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 7,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 16,
        "use_bidirectional_attention": True,
        "max_position_embeddings": 512,
    },
    saved={"sliding_window": 16},
)
