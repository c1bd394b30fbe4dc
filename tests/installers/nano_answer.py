"""Let nano answer in one process, which an emulator can run: `python nano_answer.py CACHE`.

It prints which variant of llama.cpp's CPU backend computed, and the tokens with their text.
"""

import json
import sys
from pathlib import Path

from gptoss_local.base.types import ContextParams
from gptoss_local.engine.llama import Context, Model
from gptoss_local.harmony import load_vocabulary
from gptoss_local.harmony.vocabulary import RETURN
from gptoss_local.models.nano import ensure_gguf

QUESTION = "<|start|>user<|message|>What is the capital of France?<|end|><|start|>assistant"
N_MOST = 40


def main() -> None:
    cache = Path(sys.argv[1])
    gguf = ensure_gguf(cache)
    vocabulary = load_vocabulary()
    model = Model(gguf)
    context = Context(model, ContextParams(n_ctx=512, n_threads_prefill=2, n_threads_decode=2))
    batch, position, tokens = vocabulary.encode_tagged(QUESTION), 0, list[int]()
    while batch != [RETURN] and len(tokens) < N_MOST:
        context.decode(batch, position=position)
        position += len(batch)
        batch = [int(context.logits(-1).argmax())]
        tokens += batch
    maps = Path("/proc/self/maps").read_text().splitlines()
    loaded = {Path(line.split()[-1]).name for line in maps if "ggml-cpu" in line}
    text = b"".join(vocabulary.bytes_of(token) for token in tokens).decode()
    print(json.dumps({"loaded": sorted(loaded), "tokens": tokens, "text": text}))


if __name__ == "__main__":
    main()
