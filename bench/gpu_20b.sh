#!/usr/bin/env bash
# gpt-oss-20b's shapes on a GPU, the whole way: checkpoint -> convert -> serve, against llama.cpp
# itself in the same run.
#
#     bench/gpu_20b.sh WORK_DIR [LLAMA_BENCH]
#
# WORK_DIR needs 27 GB. Uses the `python3` on PATH, with gptoss and a CUDA build of llama.cpp in it.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$1
llama_bench=${2:-llama-bench}

python3 bench/synth_checkpoint.py 20b "$work/checkpoint"
cat "$work"/checkpoint/*.safetensors > /dev/null  # from memory, so that the disk is not measured
python3 - "$work/checkpoint" "$work/20b.gguf" <<'PY'
import pathlib, resource, subprocess, sys, time
source, target = map(pathlib.Path, sys.argv[1:])
start = time.perf_counter()
subprocess.run([sys.executable, "-m", "gptoss_local", "convert", source, target], check=True)
seconds = time.perf_counter() - start
n_in = sum(f.stat().st_size for f in source.glob("*.safetensors"))
peak_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(f"convert: {n_in / 1e9:.2f} GB to {target.stat().st_size / 1e9:.2f} GB in {seconds:.1f} s, "
      f"{n_in / 1e9 / seconds:.2f} GB/s, peak resident {peak_kib / 2**20:.2f} GiB, mapped files included")
PY
rm -r "$work/checkpoint"

"$llama_bench" -m "$work/20b.gguf" -ngl 99 -fa 1 -p 2048 -n 128 -o md
python3 bench/http_overhead.py --model "$work/20b.gguf" --rounds 5
