"""What it costs a prompt to be read in steps: waiting for each, and saving windows behind them.

    python bench/prefill_steps.py FILE.gguf [--prompt 4096 16384] [--steps 256 512 1024 2048]

Tokens a second of a prompt of one sequence, read in steps of so many tokens. "last": nothing waits
but for the last step, so that a device computes one while the host prepares the next. "each": the
host waits for each. "point": it waits and saves the sliding layers' window once 1,024 tokens are
new, as the engine does; "points": at every second such place it saves two of them. "host ms" is the
time of a `llama_decode` call that nothing keeps waiting: the first one behind a wait, where "each"
waits.
"""

import argparse
import statistics
import time
from pathlib import Path

from gptoss_local.llama import Context, ContextParams, Model

WAYS = {"last": 0, "each": 0, "point": 1, "points": 2}  # windows saved at a time
_POINT_EVERY = 1024  # tokens
_N_SEQ = 8


class Reader:
    """Reads one prompt after the other into the same context."""

    def __init__(self, context: Context, n_step: int, way: str) -> None:
        self._context = context
        self._n_step = n_step
        self._way = way
        self.host_ms: list[float] = []

    def read(self, n_prompt: int) -> float:
        """Seconds that a prompt of so many tokens takes."""
        self._context.remove(0)
        tokens = [1000 + i * 7919 % 150_000 for i in range(n_prompt)]
        n_saved = 0
        start = time.perf_counter()
        for n_past in range(0, n_prompt, self._n_step):
            before = time.perf_counter()
            self._context.decode(tokens[n_past : n_past + self._n_step], position=n_past)
            self.host_ms.append((time.perf_counter() - before) * 1e3)
            n_saved = self._wait(n_past + self._n_step, n_saved)
        self._context.synchronize()
        return time.perf_counter() - start

    def _wait(self, n_tokens: int, n_saved: int) -> int:
        """Wait and save as the way is; return how many tokens are saved."""
        if self._way == "each":
            self._context.synchronize()
        every = max(_POINT_EVERY, self._n_step)
        places = range(n_saved + every, n_tokens + 1, every)
        if not WAYS[self._way] or len(places) < WAYS[self._way]:
            return n_saved
        for place in places:
            self._context.save(0, partial=True, end=place)
        return places[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--prompt", type=int, nargs="+", default=[4096, 16384])
    parser.add_argument("--steps", type=int, nargs="+", default=[256, 512, 1024, 2048])
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    model = Model(arguments.model)
    print("step  way     host ms " + "".join(f"{n:>9}" for n in arguments.prompt) + "  tokens")
    for n_step in arguments.steps:
        params = ContextParams(
            n_ctx=max(arguments.prompt) + 1024,
            n_threads_prefill=arguments.threads,
            n_threads_decode=arguments.threads,
            n_batch=n_step,
            n_seq_max=_N_SEQ,
        )
        context = Context(model, params)
        Reader(context, n_step, "last").read(min(arguments.prompt))  # the kernels' first use
        for way in WAYS:
            reader = Reader(context, n_step, way)
            times = [
                statistics.median(reader.read(n) for _ in range(arguments.rounds))
                for n in arguments.prompt
            ]
            speeds = [n / s for n, s in zip(arguments.prompt, times, strict=True)]
            figures = "".join(f"{speed:9.0f}" for speed in speeds)
            print(f"{n_step:4}  {way:6}  {statistics.median(reader.host_ms):7.2f} {figures}")
        context.close()


if __name__ == "__main__":
    main()
