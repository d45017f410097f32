"""Transformers' side of make_architectures.py: build a tiny random model, save it as GGUF by llama.cpp's own converter, and
compute what it answers. Runs in a Python that has torch and transformers.

    python architecture_worker.py RECIPE.py SOURCE OUT

SOURCE: llama.cpp's source, with conversion/ and gguf-py/. Writes OUT/model.gguf and OUT/expected.npz (ids i64[T], logits
f32[T, V]).
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LEVELS = 5
"""Values a weight may have: few, so that a file of them compresses to a tenth."""


def load_recipe(path: Path) -> Any:
    """The RECIPE of a file."""
    sys.path.insert(0, str(HERE / "architectures"))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.RECIPE


def randomise(model: Any) -> None:
    """Give every parameter and float buffer that is saved a random value out of few: matrices so that rows keep their size."""
    import torch

    generator = torch.Generator().manual_seed(1)
    names = set(model.state_dict())
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if name not in names or not value.is_floating_point():
                continue
            level = torch.randint(-(LEVELS // 2), LEVELS // 2 + 1, value.shape, generator=generator).float()
            if value.dim() >= 2 and "conv" not in name:
                value.copy_(level * 2.0 ** round(float(torch.log2(torch.tensor(value.shape[-1] ** -0.5)))))
            elif value.dim() >= 2:
                value.copy_(level / 4)
            elif name.endswith(("A_log", "dt_bias", "D")):
                value.copy_(torch.round(value.float() * 8) / 8 + level / 16)
            elif bool((value == 1).all()):  # a norm's weight around 1, or, as zeros, around what is added to 1
                value.copy_(1 + level / 8)
            else:
                value.copy_(level / 8)


def build(recipe: Any) -> Any:
    """The model, in float32."""
    import torch
    import transformers

    torch.manual_seed(0)
    options = {"vocab_size": 288, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0} | recipe.options
    config = getattr(transformers, recipe.config)(**options)
    config._attn_implementation = "eager"
    model = getattr(transformers, recipe.model)(config).float().eval()
    randomise(model)
    return model


def convert(model: Any, recipe: Any, source: Path, out: Path) -> None:
    """Save the model as Transformers does and run the converter on that, with a made-up vocabulary."""
    import numpy as np

    folder = out / "model"
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = [type(model).__name__]
    (folder / "config.json").write_text(json.dumps(config))
    tokens = [{"id": i, "content": f"t{i}"} for i in range(int(config["vocab_size"]))]
    vocabulary = {
        "model": {"type": "BPE", "vocab": {t["content"]: t["id"] for t in tokens}, "merges": []},
        "added_tokens": tokens[:3],
    }
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary))
    sys.path[:0] = [str(source), str(source / "gguf-py"), str(HERE.parent / "tests" / "support")]
    import gguf
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
    from tiny_vocabulary import make_bpe, make_spm

    hparams = ModelBase.load_hparams(folder, False)
    kind = get_model_class(get_model_architecture(hparams, ModelType.TEXT), mmproj=False)

    def set_vocab(self: Any) -> None:
        make = make_bpe if recipe.vocabulary == "bpe" else make_spm
        for key, value in (make(int(config["vocab_size"])) | recipe.metadata).items():
            add(self.gguf_writer, key, value)

    def add(writer: Any, key: str, value: Any) -> None:
        if isinstance(value, (list, np.ndarray)):
            writer.add_array(key, list(value))
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_string(key, str(value))

    modify = kind.modify_tensors

    def modify_tensors(self: Any, *args: Any) -> Any:
        # StableLM's is a generator that returns its stacked norms instead of yielding them, so they would be lost.
        rest = yield from modify(self, *args)
        yield from rest or ()

    kind.set_vocab, kind.modify_tensors = set_vocab, modify_tensors
    kind(folder, gguf.LlamaFileType.ALL_F32, out / "model.gguf", eager=True).write()


def answer(model: Any, recipe: Any, out: Path) -> None:
    """Compute the model's logits, or an encoder's last hidden states."""
    import numpy as np
    import torch

    vocab_size = int(model.config.vocab_size)
    ids = np.random.default_rng(7).integers(3, vocab_size, recipe.tokens)
    with torch.no_grad():
        done = model(input_ids=torch.from_numpy(ids)[None], **({} if recipe.is_encoder else {"use_cache": False}))
    logits = done.last_hidden_state if recipe.is_encoder else done.logits
    np.savez(out / "expected.npz", ids=ids, logits=logits[0].float().numpy())


def main() -> None:
    """Do all three."""
    import torch

    recipe, source, out = load_recipe(Path(sys.argv[1])), Path(sys.argv[2]), Path(sys.argv[3])
    with torch.inference_mode():
        model = build(recipe)
        answer(model, recipe, out)
        convert(model, recipe, source, out)


if __name__ == "__main__":
    main()
