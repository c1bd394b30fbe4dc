"""Measure how long a cancel takes: until the engine is idle, and until the next request's token.

    python bench/cancel.py [--model FILE.gguf] [--prompt N] [--batch N] [--rounds N]

Starts an engine process and cancels, at random moments, a prefill of `--prompt` tokens that runs
alone, and a decode. Prints milliseconds, median and worst, and the first token of the same short
request when nothing was cancelled before it.
"""

import argparse
import asyncio
import random
import statistics
import time
from pathlib import Path

from gptoss_local.base.settings import load_settings
from gptoss_local.base.types import ContextParams, SamplingParams
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import N_DRAFT_MAX, Generate, Load, PrefixOptions
from gptoss_local.models.nano import ensure_gguf

N_NEXT = 48  # tokens of the prompt that comes after a cancel


class Bench:
    def __init__(self, client: EngineClient, n_prompt: int) -> None:
        self._client = client
        self._n_prompt = n_prompt
        self._random = random.Random(1)

    def _asked(self, n_prompt: int, n_answer: int | None = None) -> Generate:
        prompt = [self._random.randrange(1000, 190_000) for _ in range(n_prompt)]
        return Generate(prompt=prompt, sampling=SamplingParams(), max_tokens=n_answer)

    async def first_token_s(self) -> float:
        """Return seconds until the first token of a short request for one token."""
        start_s = time.monotonic()
        answer = self._client.generate(self._asked(N_NEXT, 1))
        await anext(answer)
        first_s = time.monotonic() - start_s
        async for _ in answer:
            pass
        return first_s

    async def prefill_s(self) -> float:
        start_s = time.monotonic()
        async for _ in self._client.generate(self._asked(self._n_prompt, 1)):
            pass
        return time.monotonic() - start_s

    async def cancel(self, n_prompt: int, after_s: float) -> tuple[float, float]:
        """Return seconds until idle, and to the first token of a request sent with the cancel."""
        running = asyncio.create_task(self._run(n_prompt))
        await asyncio.sleep(after_s)
        if running.done():
            raise SystemExit("the request was over before it was cancelled")
        start_s = time.monotonic()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        stats = await self._client.stats()
        idle_s = time.monotonic() - start_s
        if stats.n_running:
            raise SystemExit("a cancelled request still runs")
        return idle_s, idle_s + await self.first_token_s()

    async def _run(self, n_prompt: int) -> None:
        async for _ in self._client.generate(self._asked(n_prompt)):
            pass


async def run(arguments: argparse.Namespace, path: Path) -> None:
    load = Load(
        model_path=str(path),
        context=ContextParams(
            n_ctx=32_768,
            n_threads_prefill=arguments.threads,
            n_threads_decode=arguments.threads,
            n_batch=arguments.batch,
            n_seq_max=4,
            n_outputs_max=4 + N_DRAFT_MAX,
            n_outputs_max_per_seq=1 + N_DRAFT_MAX,
        ),
        prefixes=PrefixOptions(checkpoint_bytes=512 << 20),
    )
    client = await EngineClient.start(load)
    try:
        bench = Bench(client, arguments.prompt)
        await bench.prefill_s()
        await bench.first_token_s()
        whole_s = await bench.prefill_s()
        first_s = [await bench.first_token_s() for _ in range(arguments.rounds)]
        print(f"prefill of {arguments.prompt} tokens: {whole_s:.2f} s; "
              f"first token of {N_NEXT}: {show(first_s)}", flush=True)  # fmt: skip
        for what, n_prompt, longest_s in (
            ("prefill", arguments.prompt, 0.8 * whole_s),
            ("decode", N_NEXT, first_s[0] + 1.0),
        ):
            shortest_s = 2 * max(first_s) if what == "decode" else 0.0
            found = [
                await bench.cancel(n_prompt, random.uniform(shortest_s, longest_s))
                for _ in range(arguments.rounds)
            ]
            idle_s, next_s = zip(*found, strict=True)
            print(f"cancel in {what}: idle {show(idle_s)}, next token {show(next_s)}", flush=True)
    finally:
        await client.close()


def show(seconds: tuple[float, ...] | list[float]) -> str:
    return f"{1e3 * statistics.median(seconds):.1f} (worst {1e3 * max(seconds):.1f}) ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a GGUF; the embedded nano when not given")
    parser.add_argument("--prompt", type=int, default=16_384)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    asyncio.run(run(arguments, arguments.model or ensure_gguf(load_settings().cache_dir)))


if __name__ == "__main__":
    main()
