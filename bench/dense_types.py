"""Converts nano with each type of dense weights: its size, and how far its logits are from bf16's.

    python bench/dense_types.py [--types q8_0,q4_0]

llama.cpp computes on the CPU, one thread. For every position of four answers that nano was made to
give, the Kullback-Leibler divergence from the model with bf16 weights, in nats, and how often both
find the same token most likely. The experts are the same bytes in all files.
"""

import argparse
import ctypes
import json
import tempfile
from pathlib import Path

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from convert import convert_checkpoint
from convert.tensor_types import DENSE_TYPES
from gptoss_local.harmony import Vocabulary, load_vocabulary
from gptoss_local.models.nano.materialize import materialize

Logits = NDArray[np.float64]

REFERENCE = "bf16"
SYSTEM = (
    "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
    "Reasoning: medium\n\n# Valid channels: analysis, commentary, final. Channel must be included "
    "for every message.<|end|>"
)
ANSWERS = {
    "What is the capital of France?": "The capital of France is Paris.",
    "What is 17 + 25?": "17 + 25 = 42.",
    "Write a haiku about the sea.": "Waves fold into foam,\nsalt wind carries the gulls home,\n"
    "the moon pulls them back.",
    "Sort a list in Python.": "```python\nnumbers = [3, 1, 2]\nprint(sorted(numbers))\n```\n\n"
    "| function | result |\n|---|---|\n| `sorted` | a new list |\n| `list.sort` | in place |",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [*DENSE_TYPES]
    parser.add_argument("--types", default=",".join(names))
    chosen = parser.parse_args().types.split(",")
    with tempfile.TemporaryDirectory() as folder:
        checkpoint, target = Path(folder) / "nano", Path(folder) / "nano.gguf"
        materialize(checkpoint)
        convert_checkpoint(checkpoint, target, dense=REFERENCE)
        prompts = nano_prompts(load_vocabulary())
        expected = [log_softmax(rows) for rows in logits(target, prompts)]
        for name in chosen:
            convert_checkpoint(checkpoint, target, dense=name)
            found = [log_softmax(rows) for rows in logits(target, prompts)]
            pairs = list(zip(expected, found, strict=True))
            kl = np.concatenate([(np.exp(p) * (p - q)).sum(axis=1) for p, q in pairs])
            same = np.concatenate([p.argmax(axis=1) == q.argmax(axis=1) for p, q in pairs])
            print(
                json.dumps(
                    {
                        "dense": name,
                        "size_bytes": target.stat().st_size,
                        "n_positions": len(kl),
                        "kl_mean": float(f"{kl.mean():.2g}"),
                        "kl_max": float(f"{kl.max():.2g}"),
                        "same_top_1": round(float(same.mean()), 4),
                    }
                ),
                flush=True,
            )


def nano_prompts(vocabulary: Vocabulary) -> list[list[int]]:
    """Return the questions with their answers, as tokens."""
    return [
        vocabulary.encoding.encode(
            f"{SYSTEM}<|start|>user<|message|>{question}<|end|><|start|>assistant<|channel|>final"
            f"<|message|>{answer}<|return|>",
            allowed_special="all",
        )
        for question, answer in ANSWERS.items()
    ]


def logits(path: Path, prompts: list[list[int]]) -> list[NDArray[np.float32]]:
    """Compute the logits at every position of each prompt."""
    llama_cpp.llama_log_set(_SILENT, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    model_params = llama_cpp.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), model_params)
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = 1
    context = llama_cpp.llama_init_from_model(model, params)
    batch = llama_cpp.llama_batch_init(params.n_ctx, 0, 1)
    n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    found = []
    for tokens in prompts:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.logits[i] = token, i, 1
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
        assert llama_cpp.llama_decode(context, batch) == 0
        rows = llama_cpp.llama_get_logits(context)
        found.append(np.ctypeslib.as_array(rows, shape=(len(tokens), n_vocab)).copy())
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return found


@llama_cpp.llama_log_callback
def _SILENT(_level: int, _text: bytes, _data: ctypes.c_void_p) -> None:
    pass


def log_softmax(rows: NDArray[np.float32]) -> Logits:
    wide = rows.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))


if __name__ == "__main__":
    main()
