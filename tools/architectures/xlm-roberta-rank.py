"""A reranker of RoBERTa's form, as bge-reranker-v2-m3: one token type, positions that begin behind the padding's, a classifier of
two matrices. Its files call themselves bert.
"""

from recipe import Recipe

RECIPE = Recipe(
    config="XLMRobertaConfig",
    model="XLMRobertaForSequenceClassification",
    vocabulary="wordpiece",
    is_encoder=True,
    metadata={"tokenizer.ggml.token_type_count": 1},
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 258,
        "type_vocab_size": 1,
        "pad_token_id": 1,
        "num_labels": 1,
    },
)
