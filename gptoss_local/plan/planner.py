"""The planner: model facts + machine facts + wishes -> plan. A pure function.

It tries every useful combination of context, batch and placement and takes the best by one order,
so more memory never makes a plan worse:

1. a context of at least `FLOOR_CTX` tokens (a wished one is a condition);
2. the shortest time for a prompt of 4,096 tokens and an answer of 512, where half the context
   counts as if that took a tenth longer, or a fiftieth where experts are on the host; of a wished
   context, the time alone;
3. more context, smaller batches.
"""

import math
from collections.abc import Iterator

import msgspec

from gptoss_local.errors import DoesNotFitError
from gptoss_local.hardware import Machine
from gptoss_local.nvidia import Gpu
from gptoss_local.plan.facts import ModelFacts
from gptoss_local.plan.measured import Tuning
from gptoss_local.plan.memory import (
    Shape,
    all_cache_bytes,
    cache_bytes,
    compute_bytes,
    host_bytes,
    output_bytes,
)
from gptoss_local.plan.outcome import HostMemory, Plan
from gptoss_local.plan.placement import HOST_ONLY, Placement, iter_placements
from gptoss_local.plan.speed import estimate_speed
from gptoss_local.plan.threads import plan_threads
from gptoss_local.plan.wishes import Wishes

FLOOR_CTX = 32_768
"""Less context than this only where nothing else fits: agents begin with 10,000 and more."""

_HALF_CTX_COSTS = 1.1
_HALF_CTX_COSTS_BESIDE_HOST = 1.02  # answers wait for RAM; a prompt that needs more loads anew
_CTX_STEPS = (131_072, 98_304, 65_536, 49_152, 32_768, 24_576, 16_384, 8192, 4096)
_BATCHES = (256, 512, 1024, 2048, 4096)
_HOST_BATCH = 512  # CPUs gain nothing from more
_ENGINE_BYTES = 300 * 2**20  # Python, vocabulary, masks; beside checkpoints
_MIB = 2**20
_RAM_MARGIN_BYTES = 1024 * _MIB  # left free where weights are pinned: nobody can take them back


def make_plan(
    facts: ModelFacts,
    machine: Machine,
    wishes: Wishes = Wishes(),  # noqa: B008
    tuning: Tuning | None = None,
) -> Plan:
    """Choose the best plan for a model on a machine.

    Args:
        facts: Of the model.
        machine: As it is now, or imagined.
        wishes: Of the user.
        tuning: What was measured of the model on this machine.

    Raises:
        DoesNotFitError: there is none that keeps to the wishes; it says which memory is too small.
    """
    best: Plan | None = None
    best_rank: tuple[float, ...] = ()
    for n_ctx in _contexts(facts, wishes):
        for n_batch in _BATCHES:
            plan = _plan(facts, machine, wishes, n_ctx, n_batch, tuning)
            if plan is None:
                continue
            rank = _rank(facts, plan, wishes)
            if best is None or rank < best_rank:
                best, best_rank = plan, rank
    if best is None:
        raise _refusal(facts, machine, wishes)
    return best


def gpu_budget(gpu: Gpu, wishes: Wishes) -> int:
    """Bytes of a GPU that a plan may use: what is free, less a margin for what others start.

    That is 3 % of the card, within 256 and 512 MiB: windows and videos take no more on a larger
    one. Twice as much where Windows' display driver would page to RAM without a word.
    """
    margin = min(max(256 * _MIB, round(0.03 * gpu.total_bytes)), 512 * _MIB)
    margin *= 2 if gpu.is_wddm else 1
    free_bytes = gpu.free_bytes
    if wishes.vram_bytes is not None and wishes.vram_bytes < free_bytes - margin:
        return max(0, wishes.vram_bytes - wishes.extra_margin_bytes)
    return max(0, free_bytes - margin - wishes.extra_margin_bytes)


def worth_s(facts: ModelFacts, plan: Plan) -> float:
    """Time of the reference request, longer for every halving of the context."""
    halvings = math.log2(facts.n_ctx_train / min(plan.shape.n_ctx, facts.n_ctx_train))
    return float(plan.speed.request_s * half_ctx_costs(facts, plan) ** halvings)


def half_ctx_costs(facts: ModelFacts, plan: Plan) -> float:
    """By what half the context makes a plan's reference request longer."""
    has_host_experts = plan.placement.expert_bytes_on_host(facts) > 0
    return _HALF_CTX_COSTS_BESIDE_HOST if has_host_experts else _HALF_CTX_COSTS


def _rank(facts: ModelFacts, plan: Plan, wishes: Wishes) -> tuple[float, ...]:
    """The smaller, the better."""
    if wishes.n_ctx is not None:
        return (plan.speed.request_s, plan.shape.n_batch)
    below_floor = max(0, min(FLOOR_CTX, facts.n_ctx_train) - plan.shape.n_ctx)
    return (below_floor, worth_s(facts, plan), -plan.shape.n_ctx, plan.shape.n_batch)


def _contexts(facts: ModelFacts, wishes: Wishes) -> Iterator[int]:
    n_least = _least_ctx(facts, wishes)
    if wishes.n_ctx is not None:
        yield _pad(min(max(wishes.n_ctx, n_least), facts.n_ctx_train))
        return
    steps = {n for n in _CTX_STEPS if n_least <= n <= facts.n_ctx_train}
    yield from sorted(steps | {n_least or facts.n_ctx_train, facts.n_ctx_train}, reverse=True)


def _least_ctx(facts: ModelFacts, wishes: Wishes) -> int:
    return _pad(min(wishes.min_ctx or 0, facts.n_ctx_train))


def _suits_cpu(facts: ModelFacts, wishes: Wishes, n_ctx: int, n_batch: int) -> bool:
    """A CPU would read a prompt of more for many minutes, and the cache takes memory at once."""
    n_most = max(FLOOR_CTX, _least_ctx(facts, wishes))
    return n_batch == _HOST_BATCH and (wishes.n_ctx is not None or n_ctx <= n_most)


def _may_use_gpu(machine: Machine, wishes: Wishes) -> bool:
    return bool(machine.usable_gpus) and wishes.n_gpu_layers != 0


def _plan(
    facts: ModelFacts,
    machine: Machine,
    wishes: Wishes,
    n_ctx: int,
    n_batch: int,
    tuning: Tuning | None = None,
) -> Plan | None:
    """Best of one shape, on GPUs or without; None if it fits nowhere."""
    shape = Shape(
        n_ctx=n_ctx,
        n_batch=n_batch,
        n_seq=wishes.n_seq,
        n_outputs=wishes.n_seq + wishes.n_draft,
        cache_type=wishes.cache_type,
    )
    found = []
    if _may_use_gpu(machine, wishes):
        placements = iter_placements(
            facts,
            shape,
            [gpu_budget(gpu, wishes) for gpu in machine.usable_gpus],
            n_gpu_layers=wishes.n_gpu_layers,
            n_cpu_moe=wishes.n_cpu_moe,
            copies_host=machine.platform != "linux",  # see `llama.pinning`
        )
        found += [_complete(facts, machine, wishes, shape, each, tuning) for each in placements]
    is_free = wishes.n_gpu_layers is None and wishes.n_cpu_moe is None
    may_use_cpu = is_free or not _may_use_gpu(machine, wishes)
    if may_use_cpu and _suits_cpu(facts, wishes, n_ctx, n_batch):
        found.append(_complete(facts, machine, wishes, shape, HOST_ONLY, tuning))
    fitting = [plan for plan in found if plan is not None]
    # rounded, as the same sum in another order is no better; the first of those stays
    return min(fitting, key=lambda plan: round(plan.speed.request_s, 9), default=None)


def _complete(
    facts: ModelFacts,
    machine: Machine,
    wishes: Wishes,
    shape: Shape,
    placement: Placement,
    tuning: Tuning | None,
) -> Plan | None:
    """Add what the host does; None if RAM is too small for it."""
    host = _host(facts, machine, wishes, shape, placement)
    if _is_too_large(host, machine):  # slow from the page cache is better than not at all
        mapped = msgspec.structs.replace(wishes, maps_host=True)
        host = _host(facts, machine, mapped, shape, placement)
    if _is_too_large(host, machine):
        return None
    n_prefill, n_decode = plan_threads(facts, machine, wishes, placement, tuning)
    missing_share = host.missing_share(machine.available_bytes)
    speed = estimate_speed(
        facts, shape, placement, machine, pinned=host.is_pinned, missing_share=missing_share
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


def _is_too_large(host: HostMemory, machine: Machine) -> bool:
    """What is mapped may be larger than RAM and is read again from the disk, but not by much."""
    return max(host.total - host.mapped, host.total / 2) > machine.available_bytes


def _host(
    facts: ModelFacts, machine: Machine, wishes: Wishes, shape: Shape, placement: Placement
) -> HostMemory:
    """Map the weights of the host, or hold them in pinned memory if a GPU needs them and it can."""
    engine = _ENGINE_BYTES + wishes.checkpoint_bytes
    if not placement.n_gpu_layers:
        # llama.cpp makes a copy of MXFP4 experts in an order that CPUs compute faster with.
        can_copy = machine.has_avx2 is not False and not wishes.maps_host
        copied = facts.expert_bytes if can_copy else 0
        return HostMemory(
            mapped=facts.weight_bytes - copied,
            weights=copied,
            cache=all_cache_bytes(facts, shape),
            compute=compute_bytes(facts, shape) + output_bytes(facts, shape),
            engine=engine,
        )
    expert_bytes = placement.expert_bytes_on_host(facts)
    on_host = facts.input_bytes + expert_bytes + placement.dense_bytes_on_host(facts)
    cache = sum(cache_bytes(facts, shape, i) for i in range(placement.n_host_layers(facts)))
    compute = host_bytes(facts, shape, has_experts=expert_bytes > 0)
    n_other = cache + compute + engine
    room = min(machine.pinnable_bytes or 0, machine.available_bytes - n_other - _RAM_MARGIN_BYTES)
    if expert_bytes and on_host <= room and not wishes.maps_host:
        return HostMemory(
            weights=on_host, cache=cache, compute=compute, engine=engine, is_pinned=True
        )
    return HostMemory(mapped=on_host, cache=cache, compute=compute, engine=engine)


def _refusal(facts: ModelFacts, machine: Machine, wishes: Wishes) -> DoesNotFitError:
    """Say why there is no plan: drop one wish after the other and see which one it was."""
    experts = "all experts in VRAM"
    if wishes.n_cpu_moe:
        experts = "all experts but those of the first {n_cpu_moe} layers in VRAM"
    trials: tuple[tuple[str, dict[str, object]], ...] = (
        ("a context of {n_ctx:,} tokens", {"n_ctx": None, "min_ctx": None}),
        (experts, {"n_cpu_moe": None}),
        ("{n_gpu_layers} layers on the GPU", {"n_gpu_layers": None}),
        ("{n_seq} answers at once", {"n_seq": 1}),
        ("the model in {vram_gib:.1f} GiB of each GPU", {"vram_bytes": None}),
        ("{checkpoint_bytes:,} bytes of checkpoints", {"checkpoint_bytes": 0}),
    )
    everything = {name: value for _, change in trials for name, value in change.items()}
    trials += (("all that is wished together", everything),)
    words = msgspec.structs.asdict(wishes) | {"n_ctx": wishes.n_ctx or wishes.min_ctx}
    words["vram_gib"] = (wishes.vram_bytes or 0) / 2**30
    for text, change in trials:
        changed = msgspec.structs.replace(wishes, **change)
        if changed != wishes and _is_possible(facts, machine, changed):
            return DoesNotFitError(
                f"this machine's memory has no room for {text.format(**words)}",
                hint="Without that wish the model fits; `gptoss plan` without it shows how.",
            )
    gib = machine.available_bytes / 2**30
    free = ", ".join(f"{gpu.free_bytes / 2**30:.1f} GiB on {gpu.name}" for gpu in machine.gpus)
    return DoesNotFitError(
        f"the model does not fit: {gib:.1f} GiB of RAM are free{', ' + free if free else ''}",
        hint="Close other programs, or choose a smaller model.",
    )


def _is_possible(facts: ModelFacts, machine: Machine, wishes: Wishes) -> bool:
    return any(
        _plan(facts, machine, wishes, n_ctx, n_batch)
        for n_ctx in _contexts(facts, wishes)
        for n_batch in _BATCHES[:2]
    )


def _pad(n: int) -> int:
    return -(-n // 256) * 256
