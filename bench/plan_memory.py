"""Predicted memory against what llama.cpp takes on GPUs, for a grid of contexts and placements.

    python bench/plan_memory.py FILE.gguf [--gpu-gib 8 12 16 24] [--ram-gib 64] [--real]

For each budget of VRAM, context and number of answers: the plan, and for every device the graph's
buffer that it predicts and that llama.cpp would make. Nothing is allocated, so FILE may be sparse.
`--real` loads and decodes one batch, once per budget; it also compares weights and cache, and all
that the plan counts with the memory that the driver lost meanwhile, CUDA's own included.
"""

import argparse
import itertools
import re
from collections import Counter
from pathlib import Path

import msgspec

from gptoss_local.hardware import Machine, read_machine
from gptoss_local.llama import Batch, Context, ContextParams, Model, ModelParams
from gptoss_local.nvidia import read_gpus
from gptoss_local.plan.facts import ModelFacts, read_facts
from gptoss_local.plan.outcome import Plan
from gptoss_local.plan.planner import make_plan
from gptoss_local.plan.wishes import Wishes

MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--gpu-gib", type=float, nargs="+", default=[8, 12, 15.5, 24])
    parser.add_argument("--ctx", type=int, nargs="+", default=[8192, 32_768, 131_072])
    parser.add_argument("--parallel", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--ram-gib", type=float, help="take this for what is available")
    parser.add_argument("--real", action="store_true")
    arguments = parser.parse_args()
    facts = read_facts(arguments.model)
    here = read_machine(arguments.model.parent)
    if not here.usable_gpus:
        raise SystemExit("no GPU, or llama.cpp is built without CUDA")
    if arguments.ram_gib:
        n_bytes = round(arguments.ram_gib * 2**30)
        here = msgspec.structs.replace(
            here, total_bytes=n_bytes, available_bytes=n_bytes, pinnable_bytes=n_bytes
        )
    contexts, parallel = arguments.ctx, arguments.parallel
    if arguments.real:
        contexts, parallel = contexts[:1], parallel[:1]
    print("GiB  ctx     seq  batch  host  device: predicted / actual MiB (compute alone)")
    for gib, n_ctx, n_seq in itertools.product(arguments.gpu_gib, contexts, parallel):
        plan = plan_for(facts, here, round(gib * 2**30), n_ctx, n_seq)
        if plan is None:
            continue
        n_host = len(plan.placement.host_experts)
        label = f"{gib:<4} {n_ctx:<7} {n_seq:<4} {plan.shape.n_batch:<6} {n_host:<5}"
        print(label, measure(arguments.model, plan, is_real=arguments.real), flush=True)


def plan_for(facts: ModelFacts, here: Machine, n_bytes: int, n_ctx: int, n_seq: int) -> Plan | None:
    """Plan for the GPUs that are here as if each had `n_bytes` free."""
    gpus = tuple(
        msgspec.structs.replace(gpu, free_bytes=n_bytes, total_bytes=n_bytes)
        for gpu in here.usable_gpus
    )
    machine = msgspec.structs.replace(here, gpus=gpus)
    plan = make_plan(facts, machine, Wishes(n_ctx=n_ctx, n_seq=n_seq))
    return plan if plan.uses_gpu else None


def measure(path: Path, plan: Plan, *, is_real: bool) -> str:
    """Predicted and actual figures of every GPU, as text."""
    before = [gpu.free_bytes for gpu in read_gpus()[1]]
    params = ModelParams(
        n_gpu_layers=plan.placement.n_gpu_layers,
        devices=plan.devices,
        tensor_split=plan.tensor_split,
        tensor_overrides=plan.placement.tensor_overrides(),
        load_mode="none" if not is_real else plan.load_mode,
        no_alloc=not is_real,
    )
    model = Model(path, params)
    shape = plan.shape
    context = Context(
        model,
        ContextParams(
            n_ctx=shape.n_ctx,
            n_threads_prefill=plan.n_threads_prefill,
            n_threads_decode=plan.n_threads_decode,
            n_batch=shape.n_batch,
            n_seq_max=shape.n_seq,
            n_outputs_max=shape.n_outputs,
            n_outputs_max_per_seq=1 + shape.n_outputs - shape.n_seq,
        ),
    )
    actual: Counter[str] = Counter()
    for buffer in model.buffers + context.buffers:
        actual[f"{buffer.place} {buffer.purpose}"] += buffer.n_bytes
    lost = [0] * len(before)
    if is_real:
        batch = Batch(shape.n_batch)
        batch.extend([11] * min(shape.n_batch, shape.n_ctx), 0, 0, n_outputs=1)
        context.decode_batch(batch)
        context.synchronize()
        lost = [b - gpu.free_bytes for b, gpu in zip(before, read_gpus()[1], strict=True)]
    text = compare(plan, actual, lost, is_real=is_real)
    model.close()
    return text


def compare(plan: Plan, actual: Counter[str], lost: list[int], *, is_real: bool) -> str:
    parts = []
    for i, memory in enumerate(plan.placement.gpus):
        compute = actual[f"CUDA{i} compute"]
        text = f"CUDA{i}: compute {memory.compute / MIB:.0f} / {compute / MIB:.0f}"
        if is_real:
            for name, predicted in (("model", memory.weights), ("kv", memory.cache)):
                text += f", {name} {predicted / MIB:.0f} / {actual[f'CUDA{i} {name}'] / MIB:.0f}"
            text += f", all {memory.total / MIB:.0f} / {lost[i] / MIB:.0f}"
        parts.append(text)
    host = [n for place, n in actual.items() if re.match(r"(CPU|CUDA_Host)\S* compute", place)]
    parts.append(f"host compute {plan.host.compute / MIB:.0f} / {sum(host) / MIB:.0f}")
    return "; ".join(parts)


if __name__ == "__main__":
    main()
