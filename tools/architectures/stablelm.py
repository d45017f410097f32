"""StableLM: biases of queries, keys and values."""

from recipe import Recipe

RECIPE = Recipe(
    config="StableLmConfig",
    model="StableLmForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "num_hidden_layers": 2,
        "use_qkv_bias": True,
    },
)
