"""OLMo 3, which GGUF calls olmo2: three of four layers see 16 tokens and do not stretch positions as the fourth does."""

from recipe import Recipe

RECIPE = Recipe(
    config="Olmo3Config",
    model="Olmo3ForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "sliding_window": 16,
        "max_position_embeddings": 512,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "original_max_position_embeddings": 64,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "attention_factor": 1.2079441541679836,
        },
    },
)
