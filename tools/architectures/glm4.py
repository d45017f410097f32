"""GLM-4: half of each head turned, norms around each block, gate and up in one matrix, biases of queries, keys and values."""

from recipe import Recipe

RECIPE = Recipe(
    config="Glm4Config",
    model="Glm4ForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 512,
    },
)
