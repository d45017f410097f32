"""OLMo 2: norms behind the blocks, queries and keys normed with all heads together."""

from recipe import Recipe

RECIPE = Recipe(
    config="Olmo2Config",
    model="Olmo2ForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
    },
)
