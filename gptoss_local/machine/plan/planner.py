"""The planner, a pure function that takes the best of all combinations by one order.

First a context of `FLOOR_CTX` tokens, or the wished one; then the shortest time for the objective's
request, where half the context, if free, counts as a tenth longer (a fiftieth with experts on the
host); then more context and smaller batches.
"""

import math
from bisect import bisect_left
from collections import ChainMap
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from gptoss_local.base.errors import DoesNotFitError, UsageError
from gptoss_local.machine.hardware import Machine
from gptoss_local.machine.nvidia import Gpu
from gptoss_local.machine.plan.facts import ModelFacts
from gptoss_local.machine.plan.measured import Tuning
from gptoss_local.machine.plan.memory import (
    Shape,
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

_LAST_QUARTER = math.log2(4 / 3)  # of the model's context, which counts a quarter as much
_HALF_CTX_COSTS = 1.1
_HALF_CTX_COSTS_BESIDE_HOST = 1.02  # answers wait for RAM; a prompt that needs more reloads
CTX_STEPS = (131_072, 98_304, 65_536, 49_152, 32_768, 24_576, 16_384, 8192, 4096)
_BATCHES = (256, 512, 1024, 2048, 4096)
_HOST_BATCH = 512  # CPUs gain nothing from more
_MIB = 2**20
_MOST_MISSING_GIB = 256
_NEAR_CTX = 1024
_OF_ONE: dict[str, Any] = {"index": 0, "uuid": "", "name": "", "free_bytes": 0, "n_processes": 0}
"""The difference between cards of a kind."""
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
    """Choose the best plan; DoesNotFitError says which memory is too small."""
    if not can_cache(facts, options.cache_type):
        raise UsageError(
            f"this model's keys of {facts.n_key} numbers cannot be stored as {options.cache_type}, "
            "which takes 32 at a time",
            hint="Set GPTOSS_KV_TYPE=f16.",
        )
    planner = _Planner(facts, _of_objective(machine, options), options, tuning)
    plans = planner.plans(_BATCHES)
    best = min(plans, key=lambda plan: _rank(facts, plan, options), default=None)
    if best is None:
        raise planner.refusal()
    return best


def _of_objective(machine: Machine, options: PlanOptions) -> Machine:
    if not options.objective.is_quiet or options.n_threads:
        return machine
    n_cores = max(1, (machine.n_cores or 1) // 2)
    n_fast = machine.n_performance_cores and min(machine.n_performance_cores, n_cores)
    return replace(machine, n_cores=n_cores, n_performance_cores=n_fast)


def gpu_budget(gpu: Gpu, options: PlanOptions) -> int:
    """Return a GPU's free bytes less 3 % of the card: 256 to 512 MiB, or twice that with WDDM."""
    margin = min(max(256 * _MIB, round(0.03 * gpu.total_bytes)), 512 * _MIB)
    usable_bytes = gpu.free_bytes - margin * (2 if gpu.is_wddm else 1)
    if options.vram_bytes is not None:
        usable_bytes = min(usable_bytes, options.vram_bytes)
    return max(0, usable_bytes - options.attempt.extra_margin_bytes)


def worth_s(facts: ModelFacts, plan: Plan, options: PlanOptions) -> float:
    halvings = max(0.0, math.log2(facts.n_ctx_train / plan.shape.n_ctx))
    halvings -= 0.75 * min(halvings, _LAST_QUARTER)
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


class _Planner(msgspec.Struct, frozen=True):
    facts: ModelFacts
    machine: Machine
    options: PlanOptions
    tuning: Tuning | None

    def plans(self, batches: Sequence[int]) -> Iterator[Plan]:
        """Yield the fastest plan for each size of context and batch that fits."""
        for n_ctx in self._contexts():
            for n_batch in batches:
                fitting = filter(None, self._plans(n_ctx, n_batch))
                # rounded, as the same sum in another order is not better; the first one wins
                plan = min(fitting, key=lambda p: round(p.speed.request_s, 9), default=None)
                if plan is not None:
                    yield plan

    @property
    def _least_ctx(self) -> int:
        return pad(min(self.options.min_ctx or 0, self.facts.n_ctx_train))

    def _contexts(self) -> list[int]:
        n_least, n_most = self._least_ctx, self.facts.n_ctx_train
        if self.options.n_ctx is not None:
            return [pad(min(max(self.options.n_ctx, n_least), n_most))]
        steps = {n for n in CTX_STEPS if n_least <= n <= n_most}
        return sorted(steps | {n_least or n_most, n_most}, reverse=True)

    def _plans(self, n_ctx: int, n_batch: int) -> Iterator[Plan | None]:
        options, gpus = self.options, self.machine.usable_gpus
        shape = Shape(
            n_ctx=n_ctx,
            n_batch=n_batch,
            n_seq=options.n_seq,
            n_outputs=options.n_seq + options.n_draft,
            cache_type=options.cache_type,
        )
        may_use_gpu = bool(gpus) and options.n_gpu_layers != 0
        if may_use_gpu:
            placements = iter_placements(
                self.facts,
                shape,
                [self._budget(shape, gpu) for gpu in gpus],
                kinds=[replace(gpu, **_OF_ONE) for gpu in gpus],
                n_gpu_layers=options.n_gpu_layers,
                n_cpu_moe=options.n_cpu_moe,
                copies_host=self.machine.platform != "linux",  # see `llama.pinning`
            )
            yield from (self._complete(shape, each) for each in placements)
        is_free = options.n_gpu_layers is None and options.n_cpu_moe is None
        # a CPU would read longer prompts for many minutes
        is_short = options.n_ctx is not None or n_ctx <= max(FLOOR_CTX, self._least_ctx)
        if (is_free or not may_use_gpu) and n_batch == _HOST_BATCH and is_short:
            yield self._complete(shape, HOST_ONLY)

    def _budget(self, shape: Shape, gpu: Gpu) -> int:
        """Return the bytes of a GPU for a plan: none without code for it, none of the RAM."""
        if not self.machine.has_code_for(gpu):
            return 0
        budget = gpu_budget(gpu, self.options)
        if not gpu.shares_ram:
            return budget
        host = host_bytes(self.facts, shape, has_experts=False) + _ENGINE_BYTES
        host += self.facts.input_bytes + (self.options.checkpoint_bytes or 0)
        return max(0, min(budget, self.machine.available_bytes - host))

    def _complete(self, shape: Shape, placement: Placement) -> Plan | None:
        facts, machine = self.facts, _beside(self.machine, placement)
        host = self._host(machine, shape, placement, maps=self.options.attempt.maps_host)
        if _is_too_large(host, machine):  # slow from the page cache is better than not at all
            host = self._host(machine, shape, placement, maps=True)
        if _is_too_large(host, machine) and self.options.checkpoint_bytes is None:
            host = _with_fewer_checkpoints(host, machine)
        if _is_too_large(host, machine):
            return None
        n_prefill, n_decode = self._threads(placement)
        missing_share = host.missing_share(machine.available_bytes)
        weights = HostWeights(pinned=host.is_pinned, missing_share=missing_share)
        speed = estimate_speed(facts, shape, placement, machine, weights, self.options.objective)
        in_vram = sum(memory.weights for memory in placement.gpus)
        return Plan(
            shape=shape,
            placement=placement,
            host=host,
            n_threads_prefill=n_prefill,
            n_threads_decode=n_decode,
            device_names=machine.device_names,
            n_gpus=len(machine.usable_gpus),
            vram_share=in_vram / (facts.weight_bytes - facts.input_bytes),
            speed=self.tuning.correct(speed) if self.tuning else speed,
        )

    def _host(
        self, machine: Machine, shape: Shape, placement: Placement, *, maps: bool
    ) -> HostMemory:
        facts, checkpoints = self.facts, self.options.checkpoint_bytes
        if checkpoints is None:
            checkpoints = _CHECKPOINT_BYTES
        experts = placement.expert_bytes_on_host(facts)
        on_host = facts.input_bytes + experts + placement.dense_bytes_on_host(facts)
        cache = sum(cache_bytes(facts, shape, i) for i in range(placement.n_host_layers(facts)))
        if placement.n_gpu_layers:
            compute = host_bytes(facts, shape, has_experts=experts > 0)
            n_other = cache + compute + _ENGINE_BYTES + checkpoints + _RAM_MARGIN_BYTES
            room = min(machine.pinnable_bytes or 0, machine.available_bytes - n_other)
            owned = on_host if experts and on_host <= room else 0
        else:
            compute = compute_bytes(facts, shape) + head_bytes(facts, shape)
            # llama.cpp makes a copy of MXFP4 experts in an order that CPUs compute faster with.
            owned = 0 if machine.lacks else experts
        weights = 0 if maps else owned
        return HostMemory(
            mapped=on_host - weights,
            weights=weights,
            cache=cache,
            compute=compute,
            engine=_ENGINE_BYTES,
            checkpoints=checkpoints,
            is_pinned=weights > 0 and placement.n_gpu_layers > 0,
        )

    def _threads(self, placement: Placement) -> tuple[int, int]:
        """Return threads of prefill and decode: as asked for, as measured, or by the cores."""
        machine, options, tuning = self.machine, self.options, self.tuning
        is_small = self.facts.weight_bytes < _SMALL_BYTES
        if options.n_threads:
            return options.n_threads, 1 if is_small else options.n_threads
        n_most = n_prefill = machine.n_cores or 1
        n_decode = 1 if is_small else machine.n_performance_cores or n_prefill
        if tuning and tuning.uses_gpu == (placement.n_gpu_layers > 0):
            n_prefill, n_decode = tuning.n_threads_prefill, tuning.n_threads_decode
            if options.objective.is_quiet:
                n_prefill, n_decode = min(n_prefill, n_most), min(n_decode, n_most)
        if placement.n_gpu_layers and placement.expert_bytes_on_host(self.facts):
            n_most = _n_taking_turns(machine)
            n_prefill, n_decode = min(n_prefill, n_most), min(n_decode, n_most)
        return n_prefill, n_decode

    def refusal(self) -> DoesNotFitError:
        """Name the first wish without which there is a plan, or else the memory that is free."""
        options, machine = self.options, self.machine
        n_ctx, n_moe = options.n_ctx or options.min_ctx or 0, options.n_cpu_moe
        but = f" but those of the first {n_moe} layers" if n_moe else ""
        vram_gib = (options.vram_bytes or 0) / 2**30
        wishes: dict[str, dict[str, int | None]] = {
            f"a context of {n_ctx:,} tokens": {"n_ctx": None, "min_ctx": None},
            f"all experts{but} in VRAM": {"n_cpu_moe": None},
            f"{options.n_gpu_layers} layers on the GPU": {"n_gpu_layers": None},
            f"{options.n_seq} answers at the same time": {"n_seq": 1},
            f"the model in {vram_gib:.1f} GiB of each GPU": {"vram_bytes": None},
            f"{options.checkpoint_bytes or 0:,} bytes of checkpoints": {"checkpoint_bytes": 0},
        }
        wishes["everything that was asked for together"] = dict(ChainMap(*wishes.values()))
        for wish, without in wishes.items():
            changed = replace(options, **without)
            if changed != options and self._fits(machine, changed):
                hint = "Without it the model fits: `gptoss plan` shows how."
                if without.keys() == {"n_ctx", "min_ctx"}:
                    hint = self._fitting_context(n_ctx) or hint
                elif without == {"n_seq": 1}:
                    hint = "One at a time fits: --parallel 1"
                message = f"this machine's memory has no room for {wish}{self._missing_ram()}"
                return DoesNotFitError(message, hint=hint)
        free = [f"{gpu.free_bytes / 2**30:.1f} GiB on {gpu.name}" for gpu in machine.gpus]
        free = [f"{machine.available_bytes / 2**30:.1f} GiB of RAM are free", *free]
        return DoesNotFitError(
            f"the model does not fit: {', '.join(free)}{self._missing_ram()}",
            hint="Close other programs, or choose a smaller model.",
        )

    def _fits(self, machine: Machine, options: PlanOptions) -> bool:
        other = replace(self, machine=machine, options=options)
        return any(other.plans(_BATCHES[:2]))

    def _missing_ram(self) -> str:
        def fits(gib: int) -> bool:
            n_bytes = self.machine.available_bytes + gib * 2**30
            return self._fits(replace(self.machine, available_bytes=n_bytes), self.options)

        gib = bisect_left(range(_MOST_MISSING_GIB), True, key=fits)
        return f"; it takes {gib} GiB of RAM more" if gib < _MOST_MISSING_GIB else ""

    def _fitting_context(self, n_wished: int) -> str:
        def fits(n_ctx: int) -> bool:
            return self._fits(self.machine, replace(self.options, n_ctx=n_ctx, min_ctx=None))

        sizes = range(n_wished // _NEAR_CTX * _NEAR_CTX, 0, -_NEAR_CTX)
        k = bisect_left(sizes, True, key=fits)
        return f"A context of {sizes[k]:,} tokens fits: --ctx {sizes[k]}" if k < len(sizes) else ""


def _beside(machine: Machine, placement: Placement) -> Machine:
    """Count the needs of GPUs without memory of their own as used RAM."""
    memories = zip(machine.usable_gpus, placement.gpus, strict=False)
    taken = sum(memory.total for gpu, memory in memories if gpu.shares_ram)
    if not taken:
        return machine
    left_bytes = max(0, machine.available_bytes - taken)
    pinnable_bytes = min(machine.pinnable_bytes or 0, left_bytes)
    return replace(machine, available_bytes=left_bytes, pinnable_bytes=pinnable_bytes)


def _is_too_large(host: HostMemory, machine: Machine) -> bool:
    """Return whether RAM is too small; mapped weights may exceed it, but not by much."""
    return max(host.total - host.mapped, host.total / 2) > machine.available_bytes


def _with_fewer_checkpoints(host: HostMemory, machine: Machine) -> HostMemory:
    """Leave checkpoints the memory that the rest does not need; see `_is_too_large`."""
    n_other, n_free = host.total - host.checkpoints, machine.available_bytes
    spare = min(n_free - (n_other - host.mapped), 2 * n_free - n_other)
    return replace(host, checkpoints=max(0, min(host.checkpoints, spare)))


def _n_taking_turns(machine: Machine) -> int:
    """Return the most threads for a CPU that takes turns with a GPU.

    They spin, so all wait for one that another program keeps from its core. PERF: 20b, 11 GiB of
    VRAM, 16 cores next to two busy programs: 234 ms a token with 16 threads and 9.7 with 14. On an
    idle machine, 120b takes 44.2, 44.9 and 44.3 ms with 16, 15 and 14.
    """
    n_cores = machine.n_logical_cores or 2 * (machine.n_cores or 1)
    return max(1, n_cores - max(1, n_cores // 8))
