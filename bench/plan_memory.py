"""Compare a GPU's predicted memory with what llama.cpp and the driver report, over a grid.

    python bench/plan_memory.py FILE.gguf [--real] [--verbose] [--kv-type q8_0]

Without `--real` nothing is allocated, so FILE may be sparse (`bench/synth_gguf.py --sparse`). For
each number of layers with experts in RAM, context, batch and number of answers, it compares the
graph's buffer as llama.cpp would make it. With `--real`, an engine in its own process is made for a
few of these and answers as many requests as it can at the same time, with drafts; then the driver's
figure is compared with all that the plan counts, CUDA's own memory included.
"""

import argparse
import itertools
import multiprocessing
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec

from gptoss_local.base.types import KvType, ModelParams, SamplingParams
from gptoss_local.engine.llama import Context, Model
from gptoss_local.engine.llama.library import logged_buffers
from gptoss_local.engine.protocol import N_DRAFT_MAX, Failed, Generate
from gptoss_local.engine.worker.engine import Engine
from gptoss_local.machine.nvidia import read_gpus
from gptoss_local.machine.plan.facts import ModelFacts, read_facts
from gptoss_local.machine.plan.memory import Shape, device_sampling_bytes, host_map_bytes
from gptoss_local.machine.plan.placement import Placement, iter_placements

MIB = 2**20
CONTEXTS, BATCHES, PARALLEL = (8192, 32_768, 131_072), (256, 512, 2048, 4096), (1, 4, 16)
REAL = ((32_768, 512, 4), (32_768, 4096, 4), (131_072, 2048, 1), (131_072, 2048, 16))


class Row(NamedTuple):
    """Bytes on the first GPU, by purpose."""

    label: str
    predicted: dict[str, int]
    actual: dict[str, int]

    @property
    def excess(self) -> float:
        """Return how far the prediction is above what was taken, as a share of the whole."""
        return sum(self.predicted.values()) / sum(self.actual.values()) - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--host-layers", type=int, nargs="+", help="layers with experts in RAM")
    parser.add_argument("--verbose", action="store_true", help="all rows, not just the extremes")
    parser.add_argument("--kv-type", choices=get_args(KvType), default="f16")
    arguments = parser.parse_args()
    facts = read_facts(arguments.model)
    n = facts.n_layers
    depths = arguments.host_layers or (0, 1, n // 2, n - 1, n)
    rows = []
    find_rows = real_rows if arguments.real else rows_without_memory
    for row in find_rows(arguments.model, depths, arguments.kv_type):
        rows.append(row)
        if arguments.verbose or arguments.real:
            print(describe(row), flush=True)
    rows.sort(key=lambda row: row.excess)
    print(f"{arguments.model.stem}: {len(rows)} rows; the lowest and the highest predictions:")
    for row in (rows[0], rows[-1]):
        print(" ", describe(row))


def place(facts: ModelFacts, shape: Shape, n_host: int) -> Placement:
    return next(iter_placements(facts, shape, [1 << 50], n_cpu_moe=n_host))


def grid(
    n_host: int, sizes: Iterator[tuple[int, int, int]], kv_type: KvType
) -> Iterator[tuple[str, Shape]]:
    for n_ctx, n_batch, n_seq in sizes:
        label = f"{n_host:>2} in RAM, ctx {n_ctx:>6}, batch {n_batch:>4}, seq {n_seq:>2}"
        outputs = n_seq + N_DRAFT_MAX
        shape = Shape(n_ctx=n_ctx, n_batch=n_batch, n_seq=n_seq, n_outputs=outputs)
        yield label, msgspec.structs.replace(shape, cache_type=kv_type)


def rows_without_memory(path: Path, depths: tuple[int, ...], kv_type: KvType) -> Iterator[Row]:
    facts = read_facts(path)
    for n_host in depths:
        model: Model | None = None
        for label, shape in grid(n_host, itertools.product(CONTEXTS, BATCHES, PARALLEL), kv_type):
            placement = place(facts, shape, n_host)
            model = model or Model(path, model_params(placement, no_alloc=True))
            context = make_context(model, shape)
            (gpu,) = placement.gpus
            # There are no samplers, and what maps pinned memory is not one of llama.cpp's buffers.
            compute = gpu.compute - device_sampling_bytes(facts, shape)
            compute -= host_map_bytes(facts, is_copy=True) if n_host else 0
            fixed = {"model": gpu.weights, "kv": gpu.cache}  # not allocated, so not reported
            actual = of_gpu(model, context)["compute"]
            yield Row(label, fixed | {"compute": compute}, fixed | {"compute": actual})
            context.close()
        if model:
            model.close()


def real_rows(path: Path, depths: tuple[int, ...], kv_type: KvType) -> Iterator[Row]:
    """Yield rows, each from its own process, as an engine has one."""
    spawning = multiprocessing.get_context("spawn")
    facts = read_facts(path)
    for n_host in depths:
        for label, shape in grid(n_host, iter(REAL), kv_type):
            before = read_gpus()[1][0].free_bytes
            with spawning.Pool(1) as pool:
                buffers, free_bytes = pool.apply(answer, (path, shape, n_host))
            (gpu,) = place(facts, shape, n_host).gpus
            predicted = {"model": gpu.weights, "kv": gpu.cache, "compute": gpu.compute}
            rest = before - free_bytes - sum(buffers.values())
            yield Row(label, predicted | {"runtime": gpu.runtime}, buffers | {"runtime": rest})


def answer(path: Path, shape: Shape, n_host: int) -> tuple[dict[str, int], int]:
    """Return what llama.cpp reports as taken, and what the driver has left at work."""
    placement = place(read_facts(path), shape, n_host)
    model = Model(path, model_params(placement))
    context = make_context(model, shape)
    engine = Engine(context, backend_sampling=True)
    rng = random.Random(0)
    for seq_id in range(shape.n_seq):
        n_prompt = min(shape.n_batch, shape.n_ctx // shape.n_seq - 64)
        prompt = [rng.randrange(1000, 2000) for _ in range(n_prompt // 2)] * 2  # draws drafts
        engine.add_request(Generate(seq_id=seq_id, prompt=prompt, sampling=SamplingParams(),
                                    stop_tokens=[], max_tokens=16))  # fmt: skip
    while engine.has_work:
        if failed := [event for event in engine.step() if isinstance(event, Failed)]:
            raise RuntimeError(failed[0].message)
    context.synchronize()
    return of_gpu(model, context), read_gpus()[1][0].free_bytes


def model_params(placement: Placement, *, no_alloc: bool = False) -> ModelParams:
    return ModelParams(
        n_gpu_layers=placement.n_gpu_layers,
        devices=("CUDA0",),
        tensor_overrides=placement.tensor_overrides(("CUDA0",)),
        load_mode="none",
        no_alloc=no_alloc,
    )


def make_context(model: Model, shape: Shape) -> Context:
    """Make a context as a plan of this shape does."""
    return Context(model, shape.context_params(n_threads_prefill=8, n_threads_decode=8))


def of_gpu(model: Model, context: Context) -> dict[str, int]:
    """Return buffers as llama.cpp logged them; the graph's grows when samplers join it."""
    grown = [buffer for buffer in logged_buffers() if buffer.purpose == "compute"]
    constant = [b for b in context.buffers if b.purpose != "compute" or not grown]
    found: Counter[str] = Counter()
    for buffer in model.buffers + constant + grown:
        if buffer.place == "CUDA0":
            found[buffer.purpose] += buffer.n_bytes
    return {name: found[name] for name in ("model", "kv", "compute")}


def describe(row: Row) -> str:
    parts = [f"{n} {row.predicted[n] / MIB:.0f} / {row.actual[n] / MIB:.0f}" for n in row.actual]
    return f"{row.label}: {row.excess:+.1%} ({', '.join(parts)} MiB)"


if __name__ == "__main__":
    main()
