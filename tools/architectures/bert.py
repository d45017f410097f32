"""BERT: learned positions, token types, layer norms after the blocks, biases everywhere."""

from recipe import Recipe

RECIPE = Recipe(
    config="BertConfig",
    model="BertModel",
    vocabulary="wordpiece",
    is_encoder=True,
    options={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 256,
        "type_vocab_size": 2,
    },
)
