"""Mamba 2 without anything beside it, two groups of B and C, a norm for each."""

from recipe import Recipe

RECIPE = Recipe(
    config="Mamba2Config",
    model="Mamba2ForCausalLM",
    options={
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_heads": 4,
        "head_dim": 32,
        "state_size": 32,
        "n_groups": 2,
        "chunk_size": 64,
    },
)
