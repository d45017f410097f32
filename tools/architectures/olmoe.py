"""OLMoE: its weights are not normalised."""

from recipe import Recipe

RECIPE = Recipe(
    config="OlmoeConfig",
    model="OlmoeForCausalLM",
    options={
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "intermediate_size": 64,
    },
)
