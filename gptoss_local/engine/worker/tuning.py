"""Measure a model on this machine within seconds: threads, step times, offloading."""

import os
import statistics
import time

from msgspec.structs import replace

from gptoss_local.base.formats.o200k import FIRST_SPECIAL
from gptoss_local.base.types import ContextParams, OffloadTimes
from gptoss_local.engine.llama import Batch, Context, Model
from gptoss_local.engine.protocol import Tuned
from gptoss_local.engine.worker.engine import Engine
from gptoss_local.machine.plan.measured import best_threads

# No threshold between 1 and 5 is of use: see `gptoss_local.machine.plan.measured.break_even`.
_SIZES, _FEW_SIZES = (1, 8, 16, 32, 64, 128), (1, 8, 32)
_CLEARLY = 1.2  # times as long on the host: with more tokens it is not tried there
_N_PROMPT = 64  # tokens of the first prompt; more of them where that is fast
_PROMPT_S = 0.5
_TRY_S = 1.0  # no step is repeated after so long
_MAX_REPEATS = 8
_PATIENCE_S = 8.0  # no more numbers of threads are tried after so long


def tune(
    model: Model, params: ContextParams, *, backend_sampling: bool, has_host_experts: bool
) -> Tuned:
    """Measure a model in about 10 s. The process must have GGML_OP_OFFLOAD_MIN_BATCH at 1."""
    counts = _thread_counts(params)
    context = Context(model, params)
    steps = _Steps(context)
    # Experts come over once for any number of tokens.
    n_prompt = context.n_batch if has_host_experts else _prompt_size(steps, context)
    prefill = _try_threads(counts, steps, n_prompt)
    n_prefill = best_threads(prefill, params.n_threads_prefill)[0]
    context.close()
    # One token's experts, too, would come to the GPU in this process.
    context = Context(model, replace(params, op_offload=False) if has_host_experts else params)
    decode = _try_threads(counts, _Steps(context), 1)
    n_decode = best_threads(decode, params.n_threads_decode)[0]
    context.set_threads(n_decode=n_decode, n_prefill=n_prefill)
    step_costs = None  # with experts on the host, they depend on how `offload` is used
    if not has_host_experts:
        step_costs = Engine(context, backend_sampling=backend_sampling).step_costs.times()
    context.close()
    best = replace(params, n_threads_decode=n_decode, n_threads_prefill=n_prefill)
    return Tuned(
        decode=decode,
        prefill=prefill,
        offload=_offload(model, best, _SIZES) if has_host_experts else (),
        step_costs=step_costs,
    )


def tune_offload(model: Model, params: ContextParams) -> Tuned:
    """Measure the figures for a first load, in seconds; the process offloads from 1 token."""
    offload = _offload(model, params, _FEW_SIZES)
    _, token_s, gpu_s = offload[0]
    n_batch, _, batch_s = offload[-1]
    return Tuned(
        decode=((params.n_threads_decode, 1 / (token_s or gpu_s)),),
        prefill=((params.n_threads_prefill, n_batch / batch_s),),
        offload=offload,
        step_costs=None,
    )


class _Steps:
    def __init__(self, context: Context) -> None:
        self.context, self._batch = context, Batch(context.n_batch)

    def seconds(self, n_tokens: int) -> float:
        self._batch.clear()
        tokens = [7919 * (i + 1) % FIRST_SPECIAL for i in range(n_tokens)]
        self._batch.extend(tokens, 0, 0, n_outputs=1)
        start_s = time.monotonic()
        self.context.decode_batch(self._batch)
        self.context.synchronize()
        seconds = time.monotonic() - start_s
        self.context.remove(0)
        return seconds

    def median_s(self, n_tokens: int) -> float:
        end_s = time.monotonic() + _TRY_S
        found = [self.seconds(n_tokens)]
        while len(found) <= _MAX_REPEATS and time.monotonic() < end_s:
            found.append(self.seconds(n_tokens))
        return statistics.median(found[1:] or found)


def _thread_counts(params: ContextParams) -> list[int]:
    n_cores = params.n_threads_prefill
    planned = [params.n_threads_decode, n_cores]
    others = {n_cores // 2, n_cores * 3 // 4, 1, 2, 4, 8, 16}
    fitting = sorted((n for n in others if 0 < n <= n_cores), reverse=True)
    n_logical = os.cpu_count() or 1
    return list(dict.fromkeys(n for n in [*planned, *fitting] if n <= max(n_logical, n_cores)))


def _try_threads(counts: list[int], steps: _Steps, n_tokens: int) -> tuple[tuple[int, float], ...]:
    """Return tokens a second of steps of `n_tokens`, by threads."""
    end_s = time.monotonic() + _PATIENCE_S
    found: list[tuple[int, float]] = []
    for n in counts:
        steps.context.set_threads(n_decode=n, n_prefill=n)
        found.append((n, n_tokens / steps.median_s(n_tokens)))
        if time.monotonic() > end_s:
            break
    return tuple(sorted(found))


def _prompt_size(steps: _Steps, context: Context) -> int:
    n, n_most = min(_N_PROMPT, context.n_batch), min(context.n_batch, context.n_ctx)
    while n < n_most and steps.seconds(n) < _PROMPT_S / 2:
        n = min(2 * n, n_most)
    return n


def _offload(model: Model, params: ContextParams, sizes: tuple[int, ...]) -> OffloadTimes:
    n_batch, n_few = params.n_batch, sizes[-1]
    params = replace(params, n_seq_max=1, n_outputs_max=1)
    context = Context(model, replace(params, n_ctx=max(2048, n_batch)))
    on_host_only = replace(params, n_ctx=max(2048, n_few), n_batch=n_few, op_offload=False)
    host_context = Context(model, on_host_only)
    on_gpu, on_host = _Steps(context), _Steps(host_context)
    found: list[tuple[int, float | None, float]] = []
    for n in sizes:
        gpu_s, host_s = on_gpu.median_s(n), on_host.median_s(n)
        found.append((n, host_s, gpu_s))
        if host_s > _CLEARLY * gpu_s:
            break
    found.append((n_batch, None, on_gpu.median_s(n_batch)))
    host_context.close()
    context.close()
    return tuple(found)
