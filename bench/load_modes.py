"""How long a model takes to load by the way its file is read, with a cold and a warm page cache.

    python bench/load_modes.py FILE.gguf [--rounds 3] [--gpu-layers N] [--load-only]

For llama.cpp's load modes, and on a CPU with and without the copy of the experts that it computes
faster with: seconds to load and those of the processor in it, seconds of the first token and of a
further one, and prompt tokens a second.
Every measurement is a process of its own. The cache is emptied of the file by posix_fadvise


    python bench/synth_checkpoint.py 20b DIR --layers 6 && gptoss convert DIR six.gguf
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from gptoss_local.llama import Batch, Context, ContextParams, Model, ModelParams

N_PROMPT = 128
MODES = ("mmap", "none", "direct_io")
FIGURES = ("load_s", "load_cpu_s", "first_s", "next_s", "prompt_tok_s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gpu-layers", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--load-only", action="store_true", help="decode nothing")
    parser.add_argument("--one", nargs=2, metavar=("MODE", "REPACK"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        mode, repack = arguments.one
        print(json.dumps(measure(arguments, mode, repack == "1")))
        return
    gib = arguments.model.stat().st_size / 2**30
    print(f"{arguments.model.name}, {gib:.2f} GiB, medians of {arguments.rounds} rounds")
    print("cache  mode       repack  " + "  ".join(FIGURES))
    for cache in ("cold", "warm"):
        for mode in MODES:
            for repack in ("1", "0"):
                found = [run(arguments, cache, mode, repack) for _ in range(arguments.rounds)]
                medians = [
                    statistics.median(each[name] for each in found)
                    for name in FIGURES
                    if name in found[0]
                ]
                text = "  ".join(f"{value:8.2f}" for value in medians)
                print(f"{cache:<6} {mode:<10} {repack:<6} {text}", flush=True)


def run(arguments: argparse.Namespace, cache: str, mode: str, repack: str) -> dict[str, float]:
    if cache == "cold":
        forget(arguments.model)
    else:
        warm(arguments.model)
    more = ["--gpu-layers", str(arguments.gpu_layers), "--threads", str(arguments.threads)]
    more += ["--load-only"] if arguments.load_only else []
    done = subprocess.run(
        [sys.executable, __file__, str(arguments.model), *more, "--one", mode, repack],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def forget(path: Path) -> None:
    """Drop a file from the page cache."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def warm(path: Path) -> None:
    """Read a file once, so that what fits of it is in the page cache."""
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass


def measure(arguments: argparse.Namespace, mode: str, repack: bool) -> dict[str, float]:
    start_s, cpu_s = time.perf_counter(), time.process_time()
    model = Model(
        arguments.model,
        ModelParams(n_gpu_layers=arguments.gpu_layers, load_mode=mode, repack=repack),  # type: ignore[arg-type]
    )
    found = {"load_s": time.perf_counter() - start_s, "load_cpu_s": time.process_time() - cpu_s}
    if not arguments.load_only:
        found |= measure_steps(model, arguments.threads)
    model.close()
    return found


def measure_steps(model: Model, n: int) -> dict[str, float]:
    context = Context(model, ContextParams(n_ctx=2048, n_threads_prefill=n, n_threads_decode=n))
    batch = Batch(context.n_batch)

    def step_s(n_rows: int) -> float:
        batch.clear()
        batch.extend([11 + i for i in range(n_rows)], 0, 0, n_outputs=1)
        start_s = time.perf_counter()
        context.decode_batch(batch)
        context.synchronize()
        seconds = time.perf_counter() - start_s
        context.remove(0)
        return seconds

    first_s = step_s(1)
    prompt_s = step_s(N_PROMPT)
    next_s = statistics.median(step_s(1) for _ in range(3))
    return {"first_s": first_s, "next_s": next_s, "prompt_tok_s": N_PROMPT / prompt_s}


if __name__ == "__main__":
    main()
