"""Convert a checkpoint and copy it, in turns, with one worker and with all: GB/s of each.

    python bench/synth_checkpoint.py 20b DIR
    python bench/convert_speed.py DIR OUT_FOLDER [--rounds 2] [--cold]

Each figure ends when the bytes are on disk. The source comes from the page cache, as far as it fits
there; with --cold the cache is emptied before each measurement (as root).
"""

import argparse
import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from convert import convert_checkpoint

DENSE = ("q8_0", "bf16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cold", action="store_true")
    arguments = parser.parse_args()
    source, target = arguments.source, arguments.out / "speed.gguf"
    shards = sorted(source.glob("*.safetensors"))
    n_bytes = sum(path.stat().st_size for path in shards)
    n_cores = os.cpu_count() or 1
    cases: dict[str, Callable[[], None]] = {"copy": lambda: copy(shards, arguments.out)}
    for dense in DENSE:
        for n_workers in sorted({1, min(8, n_cores)}):
            cases[f"{dense}, {n_workers} workers"] = converting(source, target, dense, n_workers)
    rates: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(arguments.rounds):
        for name, run in cases.items():
            if arguments.cold:
                empty_page_cache()
            start_s = time.monotonic()
            run()
            rates[name].append(n_bytes / (time.monotonic() - start_s) / 1e9)
            for path in arguments.out.iterdir():
                path.unlink()
            print(f"{name:18} {rates[name][-1]:.2f} GB/s", file=sys.stderr, flush=True)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    medians = {name: round(median(values), 2) for name, values in rates.items()}
    print(json.dumps({"source_bytes": n_bytes, "gb_per_s": medians, "peak_rss_bytes": peak_bytes}))


def converting(source: Path, target: Path, dense: str, n_workers: int) -> Callable[[], None]:
    def run() -> None:
        convert_checkpoint(source, target, dense=dense, n_workers=n_workers)  # type: ignore[arg-type]

    return run


def copy(paths: list[Path], folder: Path) -> None:
    for path in paths:
        shutil.copyfile(path, folder / path.name)
        with (folder / path.name).open("rb+") as file:
            os.fsync(file.fileno())


def empty_page_cache() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1")


if __name__ == "__main__":
    main()
