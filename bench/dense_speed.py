"""Compare types of dense weights on a GPU, at the exact shapes of 20b or 120b: bytes and speed.

    python bench/dense_speed.py LLAMA_CPP_BIN [--types q8_0,q5_1,q4_0,bf16] [--size 20b]

For each type, a file with random weights is written, measured and removed: its bytes, tokens a
second by llama-bench (pp4096, tg128) and by an engine of ours as planned here (a prompt of 4,096
tokens, the answer to it, 16 answers at the same time), the VRAM that this took and was planned to
take. How exact the types are is what `dense_types.py` says. 20b on a GPU of a server: about a
minute a type, most of it for writing, unless `--folder` is in memory, as `/dev/shm` is.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

from gpu_speed import llama_bench
from machine_presets import measure, plan_for
from synth_checkpoint import LAYERS_EXPERTS
from synth_gguf import fill, write_header


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder_of_llama_cpp", type=Path)
    parser.add_argument("--types", default="q8_0,q5_1,q4_0,bf16")
    parser.add_argument("--size", choices=LAYERS_EXPERTS, default="20b")
    parser.add_argument("--folder", type=Path, help="where files are written, one at a time")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = Path(folder) / "dense.gguf"
        for dense in arguments.types.split(","):
            start_s = time.monotonic()
            write_header(arguments.size, path, dense)
            fill(path)
            written_s = time.monotonic() - start_s
            plan = plan_for("balanced", path)
            ours = asyncio.run(measure(path, plan, "balanced", 4096, 128))
            prompt_tok_s, answer_tok_s = llama_bench(arguments.folder_of_llama_cpp, path)
            row = {
                "dense": dense,
                "file_bytes": path.stat().st_size,
                "vram_share": round(plan.vram_share, 3),
                "n_ctx": plan.shape.n_ctx,
                "llama_bench_pp4096": round(prompt_tok_s, 1),
                "llama_bench_tg128": round(answer_tok_s, 1),
            }
            print(json.dumps(row | ours | {"written_s": round(written_s, 1)}), flush=True)
            path.unlink()


if __name__ == "__main__":
    main()
