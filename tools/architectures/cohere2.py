"""Command R7B: three layers with a window that turn queries and keys, a fourth that does neither."""

from recipe import Recipe

RECIPE = Recipe(
    config="Cohere2Config",
    model="Cohere2ForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "num_hidden_layers": 4,
        "sliding_window": 16,
        "rotary_pct": 1.0,
        "logit_scale": 0.25,
    },
)
