"""DeepSeek-V2-Lite: latent attention without a low rank of queries, softmax routing, shared experts, YaRN.

Twenty-six layers, by which llama.cpp knows the lite ones; all but the last two are dense and narrow.
"""

from recipe import Recipe

RECIPE = Recipe(
    config="DeepseekV2Config",
    model="DeepseekV2ForCausalLM",
    options={
        "hidden_size": 64,
        "intermediate_size": 32,
        "moe_intermediate_size": 32,
        "num_hidden_layers": 26,
        "first_k_dense_replace": 24,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "q_lora_rank": None,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16,
        "v_head_dim": 32,
        "n_routed_experts": 8,
        "n_shared_experts": 2,
        "num_experts_per_tok": 3,
        "topk_method": "greedy",
        "routed_scaling_factor": 1.0,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 40.0,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 0.707,
            "mscale_all_dim": 0.707,
            "original_max_position_embeddings": 64,
        },
    },
)
