"""What cached prefixes cost a sequence that has nothing to do with them, and to be moved away.

    python bench/cached_cells.py FILE.gguf [--cells 0 4096 16384 65536 114688]

The cache is one for all sequences, and llama.cpp computes attention over all cells in use, whoever
they belong to. For so many cells of other sequences: tokens a second of a prompt of 4,096, and
milliseconds a token behind it. Then seconds to copy one sequence of the others to host memory, and
back.
"""

import argparse
import statistics
import time
from pathlib import Path

from gptoss_local.llama import Context, ContextParams, Model

N_PROMPT, N_STEP, N_ANSWER, N_EACH = 4096, 1024, 64, 16_384
N_OTHERS = 7  # sequences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--cells", type=int, nargs="+", default=[0, 4096, 16_384, 65_536, 114_688])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    params = ContextParams(
        n_ctx=N_OTHERS * N_EACH + 2 * N_PROMPT,
        n_threads_prefill=8,
        n_threads_decode=8,
        n_batch=N_STEP,
        n_seq_max=1 + N_OTHERS,
    )
    context = Context(Model(arguments.model), params)
    measure(context)  # the kernels' first use
    n_there = 0
    for n_cells in arguments.cells:
        for start in range(n_there, n_cells, N_STEP):
            read(context, 1 + start // N_EACH, start % N_EACH, N_STEP)
        n_there = max(n_there, n_cells)
        found = [measure(context) for _ in range(arguments.rounds)]
        prompt, token_ms = (statistics.median(values) for values in zip(*found, strict=True))
        print(f"{n_there:6} cells of others: {prompt:6.0f} tokens/s, {token_ms:5.2f} ms a token")
    move(context, min(n_there, N_EACH))


def measure(context: Context) -> tuple[float, float]:
    context.remove(0)
    context.synchronize()
    start_s = time.perf_counter()
    for position in range(0, N_PROMPT, N_STEP):
        read(context, 0, position, N_STEP)
    context.synchronize()
    prompt_s = time.perf_counter() - start_s
    for i in range(8 + N_ANSWER):
        if i == 8:  # graphs are recorded in the first ones
            start_s = time.perf_counter()
        read(context, 0, N_PROMPT + i, 1)
        context.synchronize()
    return N_PROMPT / prompt_s, 1e3 * (time.perf_counter() - start_s) / N_ANSWER


def read(context: Context, seq_id: int, position: int, n_tokens: int) -> None:
    tokens = [1000 + (position + i) * 7919 % 150_000 for i in range(n_tokens)]
    context.decode(tokens, position=position, seq_id=seq_id)


def move(context: Context, n_tokens: int) -> None:
    if not n_tokens:
        return
    start_s = time.perf_counter()
    state = context.save(1)
    saved_s = time.perf_counter() - start_s
    context.remove(1)
    start_s = time.perf_counter()
    context.restore(1, state)
    context.synchronize()
    print(
        f"{n_tokens} tokens, {state.nbytes / 1e6:.0f} MB: saved in {saved_s:.3f} s, restored in "
        f"{time.perf_counter() - start_s:.3f} s"
    )


if __name__ == "__main__":
    main()
