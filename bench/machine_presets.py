"""Load a model as each `GPTOSS_PRESET` plans it, and compare speed, memory and CPU time.

    python bench/machine_presets.py FILE.gguf [--vram 12GiB] [--presets balanced,throughput]

For each preset, an engine process of its own: what the plan changes, VRAM that it took and was
planned to take, tokens a second of a prompt of 4,096 tokens and of the answer to it, with the CPU
seconds of each. Then 16 requests at the same time, prompts of 512 tokens: tokens a second of all
answers, and seconds until the last is complete. All prompts are new and random. 20b in VRAM: about
15 s a preset.
"""

import argparse
import asyncio
import json
import os
import random
import time
from pathlib import Path
from typing import get_args

from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import Finished, Load, PrefixOptions
from gptoss_local.machine.hardware import read_machine
from gptoss_local.machine.nvidia import read_gpus
from gptoss_local.machine.plan.options import OBJECTIVES
from gptoss_local.machine.plan.result import Plan
from gptoss_local.machine.plan.words import changes
from gptoss_local.runner.planning import plan_load
from gptoss_local.settings import load_settings
from gptoss_local.types import Preset, SamplingParams, Usage

MIB = 2**20
N_STREAMS, N_SHORT = 16, 512


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--vram", help="use no more than this of each card")
    parser.add_argument("--presets", default=",".join(get_args(Preset)))
    parser.add_argument("--prompt", type=int, default=4096)
    parser.add_argument("--answer", type=int, default=128)
    arguments = parser.parse_args()
    model, sizes = arguments.model, (arguments.prompt, arguments.answer)
    balanced = plan_for("balanced", model, arguments.vram)
    for preset in arguments.presets.split(","):
        plan = plan_for(preset, model, arguments.vram)
        row = {"preset": preset, "changes": changes(balanced, plan)}
        print(json.dumps(row | await measure(model, plan, preset, *sizes)), flush=True)


def plan_for(preset: Preset, model: Path, vram: str | None = None) -> Plan:
    return plan_load(model, load_settings(preset=preset, vram=vram), None)


async def measure(
    model: Path, plan: Plan, preset: Preset, n_prompt: int, n_answer: int
) -> dict[str, float | int]:
    free_bytes = vram_free_bytes()
    load = Load(
        model_path=str(model),
        model=plan.model_params,
        context=plan.context_params,
        prefixes=PrefixOptions(checkpoint_bytes=plan.host.checkpoints),
        is_quiet=OBJECTIVES[preset].is_quiet,
        offload_min_batch=plan.speed.offload_min_batch,
    )
    start_s = time.monotonic()
    engine = await EngineClient.start(load)
    load_s = time.monotonic() - start_s
    try:
        asking = Asking(engine)
        await asking.answer(N_SHORT, 8)  # warms up
        first_s = cpu_s(engine.pid)
        read = await asking.answer(n_prompt, 1)
        read_s = cpu_s(engine.pid)
        written = await asking.answer(n_prompt, n_answer)
        written_s = cpu_s(engine.pid)
        start_s = time.monotonic()
        many = [asking.answer(N_SHORT, n_answer) for _ in range(N_STREAMS)]
        usages = await asyncio.gather(*many)
        many_s, many_cpu_s = time.monotonic() - start_s, cpu_s(engine.pid) - written_s
        vram_bytes = free_bytes - vram_free_bytes()
    finally:
        await engine.close()
    return {
        "load_s": round(load_s, 1),
        "vram_mib": vram_bytes // MIB,
        "planned_mib": sum(gpu.total for gpu in plan.placement.gpus) // MIB,
        "prompt_tok_s": figure(read.n_prompt / read.prefill_ns * 1e9),
        "prompt_cpu_s": figure(read_s - first_s),
        "answer_tok_s": figure((written.n_generated - 1) / written.decode_ns * 1e9),
        "answer_cpu_s": figure(written_s - read_s - (read_s - first_s)),
        "many_tok_s": figure(sum(usage.n_generated for usage in usages) / many_s),
        "many_s": figure(many_s),
        "many_cpu_s": figure(many_cpu_s),
    }


class Asking:
    """Asks one engine what it has never been asked."""

    def __init__(self, engine: EngineClient) -> None:
        self._engine = engine
        self._rng = random.Random(0)

    async def answer(self, n_prompt: int, n_answer: int) -> Usage:
        prompt = [self._rng.randrange(1000, 150_000) for _ in range(n_prompt)]
        events = self._engine.generate(
            prompt, SamplingParams(), stop_tokens=[], max_tokens=n_answer
        )
        async for event in events:
            if isinstance(event, Finished):
                return event.usage
        raise AssertionError("an answer ends with Finished or an error")


def vram_free_bytes() -> int:
    return sum(gpu.free_bytes for gpu in read_gpus()[1])


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process, threads included; `proc_pid_stat(5)`."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def figure(value: float) -> float:
    return float(f"{value:.3g}")


if __name__ == "__main__":
    print(json.dumps({"cores": read_machine(Path()).n_cores}))
    asyncio.run(main())
