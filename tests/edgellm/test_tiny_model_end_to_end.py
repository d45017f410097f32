"""Real kernels on tiny random models, through LLM: ends, cancelling, threads. Case O04; O12 and O13 without a server."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tiny_models import write_tiny
from tiny_vocabulary import make_bpe

from edgellm import LLM, SamplingParams

PROMPT = [70, 75, 72, 79, 79, 82, 9, 33]
OPTIONS = {"max_tokens": 40, "temperature": 2.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 5, "ignore_eos": True}
FREE = SamplingParams(**OPTIONS)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf", formats="Q8_0", tied=False)


@pytest.fixture(scope="module")
def fresh_ids(tiny: Path) -> list[int]:
    """What a process that did nothing else answers to PROMPT."""
    code = (
        "import json, sys\nfrom edgellm import LLM\n"
        "with LLM.load(sys.argv[1], threads=2) as llm:\n"
        "    done = llm.generate(json.loads(sys.argv[2]), **json.loads(sys.argv[3]))\n"
        "print(json.dumps(done.token_ids))"
    )
    command = [sys.executable, "-c", code, str(tiny), json.dumps(PROMPT), json.dumps(OPTIONS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ids: list[int] = json.loads(done.stdout)
    assert len(set(ids)) > 10, "an answer that says one thing only would prove nothing"
    return ids


@pytest.fixture
def llm(tiny: Path) -> Iterator[LLM]:
    with LLM.load(tiny, threads=2) as llm:
        yield llm


def is_idle(llm: LLM) -> bool:
    engine = llm.loaded.engine
    return not engine.has_work and engine._cache.num_free_slots == llm.loaded.config.max_sequences


@pytest.mark.parametrize("pieces", [0, 1, 7])
def test_after_close_the_next_answer_is_that_of_a_fresh_process(llm: LLM, pieces: int, fresh_ids: list[int]) -> None:
    stream = llm.stream(PROMPT[::-1] * 9, FREE, seed=1)
    for _ in range(pieces):
        next(stream)
    stream.close()
    assert stream.completion is not None and stream.completion.finish_reason == "cancelled"
    assert is_idle(llm)
    assert llm.generate(PROMPT, FREE).token_ids == fresh_ids


def test_after_garbage_collection_the_next_answer_is_that_of_a_fresh_process(llm: LLM, fresh_ids: list[int]) -> None:
    def abandon() -> None:
        for _, piece in zip(range(3), llm.stream(PROMPT[::-1], FREE, seed=1), strict=False):
            assert piece

    abandon()
    gc.collect()
    assert is_idle(llm)
    assert llm.generate(PROMPT, FREE).token_ids == fresh_ids


def test_beside_a_suspended_stream_the_answer_is_the_same(llm: LLM, fresh_ids: list[int]) -> None:
    stream = llm.stream(PROMPT[::-1], FREE, seed=1)
    next(stream)
    assert llm.generate(PROMPT, FREE).token_ids == fresh_ids
    rest = "".join(stream)
    assert rest and stream.completion is not None
    assert stream.completion.token_ids == llm.generate(PROMPT[::-1], FREE, seed=1).token_ids


def test_two_threads_get_what_they_get_alone(llm: LLM, fresh_ids: list[int]) -> None:
    prompts = [PROMPT, [3, 77, 40] * 30]
    alone = [llm.generate(prompt, FREE).token_ids for prompt in prompts]
    assert alone[0] == fresh_ids and alone[0] != alone[1]
    together: list[list[list[int]]] = [[], []]
    gate = threading.Barrier(2)

    def work(which: int) -> None:
        gate.wait(10)
        for _ in range(5):
            together[which].append(llm.generate(prompts[which], FREE).token_ids)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert together == [[alone[0]] * 5, [alone[1]] * 5]
    assert is_idle(llm)


HIDDEN, VOCAB, EOT, EOS = 64, 128, 2, 90
FIRST, SECOND = 70, 71


@pytest.fixture
def eot_model(tmp_path: Path) -> Path:
    """O04: metadata name another id as eos; FIRST is followed by SECOND, SECOND by <|eot_id|>, that by FIRST."""
    tokens = make_bpe(VOCAB)["tokenizer.ggml.tokens"]
    tokens[EOT] = "<|eot_id|>"
    embeddings, output = np.zeros((2, VOCAB, HIDDEN), np.float32)
    embeddings[:, 3] = 1
    for place, (token, following) in enumerate([(FIRST, SECOND), (SECOND, EOT), (EOT, FIRST)]):
        embeddings[token] = np.eye(HIDDEN)[place]
        output[following, place] = 20
    layer = {"attn_output": (HIDDEN, HIDDEN), "ffn_down": (HIDDEN, 96)}  # zero: a layer changes nothing
    silent = {f"blk.{i}.{name}.weight": np.zeros(size, np.float32) for i in range(2) for name, size in layer.items()}
    return write_tiny(
        tmp_path / "eot.gguf",
        tied=False,
        metadata={"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.eos_token_id": EOS},
        tensors={"token_embd.weight": embeddings, "output.weight": output, **silent},
    )


def test_o04_the_end_of_a_turn_ends_though_eos_is_another(eot_model: Path) -> None:
    with LLM.load(eot_model, threads=1) as llm:
        assert llm.tokenizer.eos_id == EOS and {EOS, EOT} <= llm.eog_ids
        done = llm.generate([FIRST], max_tokens=10, temperature=0)
        assert (done.token_ids, done.finish_reason) == ([SECOND, EOT], "stop")
        assert done.text == llm.detokenize([SECOND]) != ""
        assert list(llm.stream([SECOND], temperature=0)) == []  # the very first token ends
        on = llm.generate([FIRST], max_tokens=4, temperature=0, ignore_eos=True)
        assert (on.token_ids[0], len(on.token_ids), on.finish_reason) == (SECOND, 4, "length")
        assert EOT not in on.token_ids
        assert "eot" not in on.text, "a control token has no text"
