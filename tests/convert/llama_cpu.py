"""Logits from llama.cpp itself, on the CPU, for every position of a prompt."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

F32, F16 = 0, 1  # ggml_type
N_THREADS = 1  # more spin where another program has the cores
N_CTX = 768


@contextmanager
def load_model(path: Path, *, vocab_only: bool = False) -> Iterator[Any]:
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    params.vocab_only = vocab_only
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    assert model
    try:
        yield model
    finally:
        llama_cpp.llama_model_free(model)


def logits(
    model: Any, prompts: Iterable[list[int]], *, flash_attention: bool = True, kv_type: int = F16
) -> Iterator[NDArray[np.float32]]:
    """Run each prompt from an empty cache, in one batch.

    Shapes:
        yields: (n_tokens, n_vocab)
    """
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = N_CTX
    params.n_threads = params.n_threads_batch = N_THREADS
    params.flash_attn_type = int(flash_attention)
    params.type_k = params.type_v = kv_type
    context = llama_cpp.llama_init_from_model(model, params)
    assert context
    batch = llama_cpp.llama_batch_init(N_CTX, 0, 1)
    n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    try:
        for tokens in prompts:
            llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
            batch.n_tokens = len(tokens)
            for i, token in enumerate(tokens):
                batch.token[i], batch.pos[i], batch.logits[i] = token, i, 1
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            assert llama_cpp.llama_decode(context, batch) == 0
            rows = llama_cpp.llama_get_logits(context)
            yield np.ctypeslib.as_array(rows, shape=(len(tokens), n_vocab)).copy()
    finally:
        llama_cpp.llama_batch_free(batch)
        llama_cpp.llama_free(context)


def tokenize(model: Any, text: str, *, parse_special: bool = False) -> list[int]:
    data = text.encode()
    tokens = (llama_cpp.llama_token * (len(data) + 8))()
    vocab = llama_cpp.llama_model_get_vocab(model)
    n = llama_cpp.llama_tokenize(vocab, data, len(data), tokens, len(tokens), False, parse_special)
    assert n >= 0
    return list(tokens[:n])
