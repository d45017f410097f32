"""StarCoder 2: biases everywhere. Without its window, which the converter leaves out."""

from recipe import Recipe

RECIPE = Recipe(
    config="Starcoder2Config",
    model="Starcoder2ForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "num_hidden_layers": 2,
        "sliding_window": None,
    },
)
