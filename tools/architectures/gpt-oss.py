"""gpt-oss: biases everywhere, sinks, every other layer with a window, clamped experts, YaRN whose corners are not rounded.

Rounded outwards to whole pairs, as the paper has them and llama.cpp does, the corners of YaRN's ramp would not be those of
the published weights (`truncate` is false in their config.json). So Transformers is right, and llama.cpp's answers differ
by a KL divergence of 9e-4; with `truncate` true it is 4e-11. Float32 experts, which MXFP4 keeps exactly: a test does that.
"""

from recipe import Recipe

RECIPE = Recipe(
    config="GptOssConfig",
    model="GptOssForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 32,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "sliding_window": 16,
        "num_local_experts": 8,
        "num_experts_per_tok": 3,
        "max_position_embeddings": 1024,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
    },
)
