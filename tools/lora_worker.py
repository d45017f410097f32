"""Transformers' side of make_lora.py: a random adapter for the random model of a recipe, and what the merged model answers.

    python lora_worker.py RECIPE.py SOURCE OUT

Writes OUT/adapter.gguf, by llama.cpp's convert_lora_to_gguf.py out of files as PEFT saves them, and OUT/expected.npz (ids
i64[T], logits f32[T, V] of W + alpha / rank * B A). Runs in a Python that has torch and transformers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import architecture_worker

RANK, ALPHA = 5, 20
"""A rank that is no multiple of anything."""


def make_adapter(model: Any) -> dict[str, Any]:
    """Both halves for every matrix, by PEFT's names, and merge them into the model; tied ones and norms are left out."""
    import torch

    generator = torch.Generator().manual_seed(3)

    def draw(*shape: int) -> Any:
        return torch.randint(-2, 3, shape, generator=generator).float() / 8

    halves, tied = {}, model.config.tie_word_embeddings
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Embedding) and not tied:
            rows, width = module.weight.shape
            a, b = draw(RANK, rows), draw(width, RANK)
            suffixes = ".lora_embedding_A", ".lora_embedding_B"
            module.weight.data += ALPHA / RANK * (b @ a).T
        elif isinstance(module, torch.nn.Linear) and not (tied and name == "lm_head"):
            rows, width = module.weight.shape
            a, b = draw(RANK, width) / 8, draw(rows, RANK) / 8
            suffixes = ".lora_A.weight", ".lora_B.weight"
            module.weight.data += ALPHA / RANK * (b @ a)
        else:
            continue
        halves |= {f"base_model.model.{name}{suffix}": half for suffix, half in zip(suffixes, (a, b), strict=True)}
    return halves


def main() -> None:
    """Build, save, convert, answer."""
    import torch
    from safetensors.torch import save_file

    recipe, source, out = architecture_worker.load_recipe(Path(sys.argv[1])), Path(sys.argv[2]), Path(sys.argv[3])
    with torch.inference_mode():
        model = architecture_worker.build(recipe)
        model.save_pretrained(out / "model")
        config = json.loads((out / "model" / "config.json").read_text())
        config["architectures"] = [type(model).__name__]
        (out / "model" / "config.json").write_text(json.dumps(config))
        adapter = out / "adapter"
        adapter.mkdir()
        save_file(make_adapter(model), adapter / "adapter_model.safetensors")
        architecture_worker.answer(model, recipe, out)
    (adapter / "adapter_config.json").write_text(json.dumps({"r": RANK, "lora_alpha": ALPHA, "peft_type": "LORA"}))
    convert = [sys.executable, str(source / "convert_lora_to_gguf.py"), "--base", str(out / "model")]
    subprocess.run([*convert, "--outfile", str(out / "adapter.gguf"), str(adapter)], check=True)


if __name__ == "__main__":
    main()
