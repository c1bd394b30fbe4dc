"""The planner, a pure function that takes the best of all combinations by one order.

First a context of `FLOOR_CTX` tokens, or the wished one; then the shortest time for the objective's
request, where half the context, if free, counts as a tenth longer (a fiftieth with experts on the
host); then more context and smaller batches.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator
from functools import partial

import msgspec

from gptoss_local.base.errors import DoesNotFitError, UsageError
from gptoss_local.machine.hardware import Machine
from gptoss_local.machine.nvidia import Gpu
from gptoss_local.machine.plan.facts import ModelFacts
from gptoss_local.machine.plan.measured import Tuning
from gptoss_local.machine.plan.memory import (
    Shape,
    all_cache_bytes,
    cache_bytes,
    can_cache,
    compute_bytes,
    head_bytes,
    host_bytes,
    pad,
)
from gptoss_local.machine.plan.options import PlanOptions
from gptoss_local.machine.plan.placement import HOST_ONLY, Placement, iter_placements
from gptoss_local.machine.plan.result import HostMemory, Plan
from gptoss_local.machine.plan.speed import HostWeights, estimate_speed

FLOOR_CTX = 32_768
"""Least context if it fits, as agents begin with 10,000 and more."""

_HALF_CTX_COSTS = 1.1
_HALF_CTX_COSTS_BESIDE_HOST = 1.02  # answers wait for RAM; a prompt that needs more reloads
_CTX_STEPS = (131_072, 98_304, 65_536, 49_152, 32_768, 24_576, 16_384, 8192, 4096)
_BATCHES = (256, 512, 1024, 2048, 4096)
_HOST_BATCH = 512  # CPUs gain nothing from more
_MIB = 2**20
_MOST_MISSING_GIB = 256
_NEAR_CTX = 1024
_ENGINE_BYTES = 300 * _MIB  # Python, vocabulary, masks; besides checkpoints
_CHECKPOINT_BYTES = 512 * _MIB  # unless the user wants another number, or RAM is short
_RAM_MARGIN_BYTES = 1024 * _MIB  # left free if weights are pinned: these cannot be reclaimed


_SMALL_BYTES = 1_000_000_000
"""Below this, a decode step is too short for threads to share. PERF: nano takes 4.4 ms with one or
two, and many times that when a second thread has to wait for a busy core.
"""


def make_plan(
    facts: ModelFacts,
    machine: Machine,
    options: PlanOptions = PlanOptions(),  # noqa: B008
    tuning: Tuning | None = None,
) -> Plan:
    """Choose the best plan for a model on a machine.

    Raises:
        DoesNotFitError: no plan keeps to the options; it says which memory is too small.
        UsageError: the model's keys cannot be stored as the cache type that was asked for.
    """
    if not can_cache(facts, options.cache_type):
        raise UsageError(
            f"this model's keys of {facts.n_key} numbers cannot be stored as {options.cache_type}, "
            "which takes 32 at a time",
            hint="Set GPTOSS_KV_TYPE=f16.",
        )
    machine = _of_objective(machine, options)
    best: Plan | None = None
    best_rank: tuple[float, ...] = ()
    for n_ctx in _contexts(facts, options):
        for n_batch in _BATCHES:
            plan = _plan(facts, machine, options, n_ctx, n_batch, tuning)
            if plan is None:
                continue
            rank = _rank(facts, plan, options)
            if best is None or rank < best_rank:
                best, best_rank = plan, rank
    if best is None:
        raise _refusal(facts, machine, options)
    return best


def _of_objective(machine: Machine, options: PlanOptions) -> Machine:
    if not options.objective.is_quiet or options.n_threads:
        return machine
    n_cores = max(1, (machine.n_cores or 1) // 2)
    n_fast = machine.n_performance_cores and min(machine.n_performance_cores, n_cores)
    return msgspec.structs.replace(machine, n_cores=n_cores, n_performance_cores=n_fast)


def gpu_budget(gpu: Gpu, options: PlanOptions) -> int:
    """Return a GPU's free bytes less 3 % of the card: 256 to 512 MiB, or twice that with WDDM."""
    margin = min(max(256 * _MIB, round(0.03 * gpu.total_bytes)), 512 * _MIB)
    margin *= 2 if gpu.is_wddm else 1
    free_bytes = gpu.free_bytes
    if options.vram_bytes is not None and options.vram_bytes < free_bytes - margin:
        return max(0, options.vram_bytes - options.extra_margin_bytes)
    return max(0, free_bytes - margin - options.extra_margin_bytes)


def _budget(
    facts: ModelFacts, shape: Shape, machine: Machine, gpu: Gpu, options: PlanOptions
) -> int:
    """Return the bytes of a GPU for a plan: none without code for it, none of the RAM."""
    if not machine.has_code_for(gpu):
        return 0
    budget = gpu_budget(gpu, options)
    if not gpu.shares_ram:
        return budget
    host = facts.input_bytes + host_bytes(facts, shape, has_experts=False) + _ENGINE_BYTES
    return max(0, min(budget, machine.available_bytes - host - (options.checkpoint_bytes or 0)))


def worth_s(facts: ModelFacts, plan: Plan, options: PlanOptions) -> float:
    halvings = math.log2(facts.n_ctx_train / min(plan.shape.n_ctx, facts.n_ctx_train))
    return float(plan.speed.request_s * half_ctx_costs(facts, plan, options) ** halvings)


def half_ctx_costs(facts: ModelFacts, plan: Plan, options: PlanOptions) -> float:
    """Return the factor by which half the context lengthens a plan's reference request."""
    if not plan.placement.expert_bytes_on_host(facts):
        return _HALF_CTX_COSTS
    return 1.0 if options.objective.prefers_experts else _HALF_CTX_COSTS_BESIDE_HOST


def _rank(facts: ModelFacts, plan: Plan, options: PlanOptions) -> tuple[float, ...]:
    if options.n_ctx is not None:
        return (plan.speed.request_s, plan.shape.n_batch)
    below_floor = max(0, min(FLOOR_CTX, facts.n_ctx_train) - plan.shape.n_ctx)
    return (below_floor, worth_s(facts, plan, options), -plan.shape.n_ctx, plan.shape.n_batch)


def _contexts(facts: ModelFacts, options: PlanOptions) -> Iterator[int]:
    n_least = _least_ctx(facts, options)
    if options.n_ctx is not None:
        yield pad(min(max(options.n_ctx, n_least), facts.n_ctx_train))
        return
    steps = {n for n in _CTX_STEPS if n_least <= n <= facts.n_ctx_train}
    yield from sorted(steps | {n_least or facts.n_ctx_train, facts.n_ctx_train}, reverse=True)


def _least_ctx(facts: ModelFacts, options: PlanOptions) -> int:
    return pad(min(options.min_ctx or 0, facts.n_ctx_train))


def _suits_cpu(facts: ModelFacts, options: PlanOptions, n_ctx: int, n_batch: int) -> bool:
    """Return False for prompts that a CPU would read for many minutes."""
    n_most = max(FLOOR_CTX, _least_ctx(facts, options))
    return n_batch == _HOST_BATCH and (options.n_ctx is not None or n_ctx <= n_most)


def _may_use_gpu(machine: Machine, options: PlanOptions) -> bool:
    return bool(machine.usable_gpus) and options.n_gpu_layers != 0


def _plan(
    facts: ModelFacts,
    machine: Machine,
    options: PlanOptions,
    n_ctx: int,
    n_batch: int,
    tuning: Tuning | None = None,
) -> Plan | None:
    shape = Shape(
        n_ctx=n_ctx,
        n_batch=n_batch,
        n_seq=options.n_seq,
        n_outputs=options.n_seq + options.n_draft,
        cache_type=options.cache_type,
    )
    found = []
    if _may_use_gpu(machine, options):
        placements = iter_placements(
            facts,
            shape,
            [_budget(facts, shape, machine, gpu, options) for gpu in machine.usable_gpus],
            n_gpu_layers=options.n_gpu_layers,
            n_cpu_moe=options.n_cpu_moe,
            copies_host=machine.platform != "linux",  # see `llama.pinning`
        )
        found += [_complete(facts, machine, options, shape, each, tuning) for each in placements]
    is_free = options.n_gpu_layers is None and options.n_cpu_moe is None
    may_use_cpu = is_free or not _may_use_gpu(machine, options)
    if may_use_cpu and _suits_cpu(facts, options, n_ctx, n_batch):
        found.append(_complete(facts, machine, options, shape, HOST_ONLY, tuning))
    fitting = [plan for plan in found if plan is not None]
    # rounded, as the same sum in another order is not better; the first one wins
    return min(fitting, key=lambda plan: round(plan.speed.request_s, 9), default=None)


def _complete(
    facts: ModelFacts,
    machine: Machine,
    options: PlanOptions,
    shape: Shape,
    placement: Placement,
    tuning: Tuning | None,
) -> Plan | None:
    machine = _beside(machine, placement)
    host = _host(facts, machine, options, shape, placement)
    if _is_too_large(host, machine):  # slow from the page cache is better than not at all
        mapped = msgspec.structs.replace(options, maps_host=True)
        host = _host(facts, machine, mapped, shape, placement)
    if _is_too_large(host, machine) and options.checkpoint_bytes is None:
        host = _with_fewer_checkpoints(host, machine)
    if _is_too_large(host, machine):
        return None
    n_prefill, n_decode = plan_threads(facts, machine, options, placement, tuning)
    missing_share = host.missing_share(machine.available_bytes)
    speed = estimate_speed(
        facts,
        shape,
        placement,
        machine,
        HostWeights(pinned=host.is_pinned, missing_share=missing_share),
        options.objective,
    )
    return Plan(
        shape=shape,
        placement=placement,
        host=host,
        n_threads_prefill=n_prefill,
        n_threads_decode=n_decode,
        n_gpus=len(machine.usable_gpus),
        vram_share=sum(memory.weights for memory in placement.gpus)
        / (facts.weight_bytes - facts.input_bytes),
        speed=tuning.correct(speed) if tuning else speed,
    )


def _beside(machine: Machine, placement: Placement) -> Machine:
    """Count the needs of GPUs without memory of their own as used RAM."""
    if not any(gpu.shares_ram for gpu in machine.gpus):
        return machine
    memories = zip(machine.usable_gpus, placement.gpus, strict=False)
    taken = sum(memory.total for gpu, memory in memories if gpu.shares_ram)
    left_bytes = max(0, machine.available_bytes - taken)
    return msgspec.structs.replace(
        machine,
        available_bytes=left_bytes,
        pinnable_bytes=min(machine.pinnable_bytes or 0, left_bytes),
    )


def _is_too_large(host: HostMemory, machine: Machine) -> bool:
    """Return whether RAM is too small; mapped weights may exceed it, but not by much."""
    return max(host.total - host.mapped, host.total / 2) > machine.available_bytes


def _host(
    facts: ModelFacts, machine: Machine, options: PlanOptions, shape: Shape, placement: Placement
) -> HostMemory:
    checkpoints = options.checkpoint_bytes
    if checkpoints is None:
        checkpoints = _CHECKPOINT_BYTES
    if not placement.n_gpu_layers:
        # llama.cpp makes a copy of MXFP4 experts in an order that CPUs compute faster with.
        can_copy = not machine.lacks and not options.maps_host
        copied = facts.expert_bytes if can_copy else 0
        return HostMemory(
            mapped=facts.weight_bytes - copied,
            weights=copied,
            cache=all_cache_bytes(facts, shape),
            compute=compute_bytes(facts, shape) + head_bytes(facts, shape),
            engine=_ENGINE_BYTES,
            checkpoints=checkpoints,
        )
    expert_bytes = placement.expert_bytes_on_host(facts)
    on_host = facts.input_bytes + expert_bytes + placement.dense_bytes_on_host(facts)
    cache = sum(cache_bytes(facts, shape, i) for i in range(placement.n_host_layers(facts)))
    compute = host_bytes(facts, shape, has_experts=expert_bytes > 0)
    n_other = cache + compute + _ENGINE_BYTES + checkpoints
    room = min(machine.pinnable_bytes or 0, machine.available_bytes - n_other - _RAM_MARGIN_BYTES)
    if expert_bytes and on_host <= room and not options.maps_host:
        mapped, weights = 0, on_host
    else:
        mapped, weights = on_host, 0
    return HostMemory(
        mapped=mapped,
        weights=weights,
        cache=cache,
        compute=compute,
        engine=_ENGINE_BYTES,
        checkpoints=checkpoints,
        is_pinned=weights > 0,
    )


def _with_fewer_checkpoints(host: HostMemory, machine: Machine) -> HostMemory:
    """Leave checkpoints the memory that the rest does not need; see `_is_too_large`."""
    n_other = host.total - host.checkpoints
    spare = min(
        machine.available_bytes - (n_other - host.mapped), 2 * machine.available_bytes - n_other
    )
    return msgspec.structs.replace(host, checkpoints=max(0, min(host.checkpoints, spare)))


def _refusal(facts: ModelFacts, machine: Machine, options: PlanOptions) -> DoesNotFitError:
    experts = "all experts in VRAM"
    if options.n_cpu_moe:
        experts = "all experts but those of the first {n_cpu_moe} layers in VRAM"
    trials: tuple[tuple[str, dict[str, object]], ...] = (
        ("a context of {n_ctx:,} tokens", {"n_ctx": None, "min_ctx": None}),
        (experts, {"n_cpu_moe": None}),
        ("{n_gpu_layers} layers on the GPU", {"n_gpu_layers": None}),
        ("{n_seq} answers at the same time", {"n_seq": 1}),
        ("the model in {vram_gib:.1f} GiB of each GPU", {"vram_bytes": None}),
        ("{checkpoint_bytes:,} bytes of checkpoints", {"checkpoint_bytes": 0}),
    )
    everything = {name: value for _, change in trials for name, value in change.items()}
    trials += (("everything that was asked for together", everything),)
    words = msgspec.structs.asdict(options) | {"n_ctx": options.n_ctx or options.min_ctx}
    words["vram_gib"] = (options.vram_bytes or 0) / 2**30
    for text, change in trials:
        changed = msgspec.structs.replace(options, **change)
        if changed != options and _is_possible(facts, machine, changed):
            return DoesNotFitError(
                f"this machine's memory has no room for {text.format(**words)}"
                f"{_missing(facts, machine, options)}",
                hint=_nearest(facts, machine, options, change),
            )
    gib = machine.available_bytes / 2**30
    free = ", ".join(f"{gpu.free_bytes / 2**30:.1f} GiB on {gpu.name}" for gpu in machine.gpus)
    return DoesNotFitError(
        f"the model does not fit: {gib:.1f} GiB of RAM are free{', ' + free if free else ''}"
        f"{_missing(facts, machine, options)}",
        hint="Close other programs, or choose a smaller model.",
    )


def _missing(facts: ModelFacts, machine: Machine, options: PlanOptions) -> str:
    def fits(gib: int) -> bool:
        total_bytes = machine.total_bytes + gib * 2**30
        available_bytes = machine.available_bytes + gib * 2**30
        larger = msgspec.structs.replace(
            machine, total_bytes=total_bytes, available_bytes=available_bytes
        )
        return _is_possible(facts, larger, options)

    gib = bisect_left(range(_MOST_MISSING_GIB), True, key=fits)
    return f"; it takes {gib} GiB of RAM more" if gib < _MOST_MISSING_GIB else ""


def _nearest(
    facts: ModelFacts, machine: Machine, options: PlanOptions, change: dict[str, object]
) -> str:
    def fits(name: str, n: int) -> bool:
        changed = msgspec.structs.replace(options, **(change | {name: n}))
        return _is_possible(facts, machine, changed)

    n_ctx = options.n_ctx or options.min_ctx or 0
    sizes = range(n_ctx // _NEAR_CTX * _NEAR_CTX, 0, -_NEAR_CTX)
    if list(change) == ["n_ctx", "min_ctx"]:
        k = bisect_left(sizes, True, key=partial(fits, "n_ctx"))
        if k < len(sizes):
            return f"A context of {sizes[k]:,} tokens fits: --ctx {sizes[k]}"
    counts = range(options.n_seq - 1, 0, -1)
    if list(change) == ["n_seq"]:
        k = bisect_left(counts, True, key=partial(fits, "n_seq"))
        if k < len(counts):
            return f"{counts[k]} at the same time fit: --parallel {counts[k]}"
    return "Without it the model fits: `gptoss plan` shows how."


def _is_possible(facts: ModelFacts, machine: Machine, options: PlanOptions) -> bool:
    return any(
        _plan(facts, machine, options, n_ctx, n_batch)
        for n_ctx in _contexts(facts, options)
        for n_batch in _BATCHES[:2]
    )


def plan_threads(
    facts: ModelFacts,
    machine: Machine,
    options: PlanOptions,
    placement: Placement,
    tuning: Tuning | None,
) -> tuple[int, int]:
    """Return threads of prefill and decode: as asked for, as measured, or by the cores."""
    is_small = facts.weight_bytes < _SMALL_BYTES
    if options.n_threads:
        return options.n_threads, 1 if is_small else options.n_threads
    if tuning and tuning.uses_gpu == (placement.n_gpu_layers > 0):
        n_prefill, n_decode = tuning.n_threads_prefill, tuning.n_threads_decode
        if options.objective.is_quiet:
            n_most = machine.n_cores or 1
            n_prefill, n_decode = min(n_prefill, n_most), min(n_decode, n_most)
    else:
        n_prefill = machine.n_cores or 1
        n_decode = 1 if is_small else machine.n_performance_cores or n_prefill
    if not (placement.n_gpu_layers and placement.expert_bytes_on_host(facts)):
        return n_prefill, n_decode
    n_most = _n_taking_turns(machine)
    return min(n_prefill, n_most), min(n_decode, n_most)


def _n_taking_turns(machine: Machine) -> int:
    """Return the most threads for a CPU that takes turns with a GPU.

    They spin, so all wait for one that another program keeps from its core. PERF: 20b, 11 GiB of
    VRAM, 16 cores next to two busy programs: 234 ms a token with 16 threads and 9.7 with 14. On an
    idle machine, 120b takes 44.2, 44.9 and 44.3 ms with 16, 15 and 14.
    """
    n_cores = machine.n_logical_cores or 2 * (machine.n_cores or 1)
    return max(1, n_cores - max(1, n_cores // 8))
