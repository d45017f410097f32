"""SmolLM3: the fourth layer of five does not turn."""

from recipe import Recipe

RECIPE = Recipe(
    config="SmolLM3Config",
    model="SmolLM3ForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
        "max_position_embeddings": 512,
    },
)
