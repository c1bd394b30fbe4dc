"""Find the way to keep all of a model on the GPU: more VRAM, or another value of one setting."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from gptoss_local.base.errors import DoesNotFitError
from gptoss_local.machine.hardware import Machine
from gptoss_local.machine.plan.facts import DENSE_BITS, ModelFacts, with_dense
from gptoss_local.machine.plan.memory import can_cache
from gptoss_local.machine.plan.options import PlanOptions
from gptoss_local.machine.plan.planner import CTX_STEPS, make_plan
from gptoss_local.machine.plan.result import Plan

_STEP = 2**30 // 10  # bytes
_MOST_STEPS = 1000
_LEAST_CTX = 8192
_CLEARLY = 0.9


class Proposal(msgspec.Struct, frozen=True):
    """A setting by its flag, such as `--ctx 8192`; `--dense` is one of `gptoss pull`."""

    flag: str
    request_s: float
    decode_tok_s: float
    is_enough: bool


class Nearest(msgspec.Struct, frozen=True):
    """The VRAM that a plan lacks for all experts, or for a GPU at all; 0 bytes: no amount helps."""

    goal: Literal["experts", "gpu"]
    missing_bytes: int
    proposals: tuple[Proposal, ...]


def nearest(
    facts: ModelFacts, machine: Machine, options: PlanOptions, plan: Plan
) -> Nearest | None:
    """Return what would improve a plan most; None if nothing can, or it is as was asked for."""
    has_wish = options.n_gpu_layers is not None or options.n_cpu_moe is not None
    is_whole = plan.uses_gpu and not plan.placement.expert_bytes_on_host(facts)
    cards = [gpu for gpu in machine.usable_gpus if machine.has_code_for(gpu)]
    if has_wish or is_whole or not cards or any(gpu.shares_ram for gpu in cards):
        return None
    search = _Search(facts, machine, options, plan)
    goal: Literal["experts", "gpu"] = "experts" if plan.uses_gpu else "gpu"
    return Nearest(goal, search.missing_bytes(), search.proposals())


def smaller_dense(
    facts: ModelFacts, machine: Machine, options: PlanOptions
) -> tuple[Plan, Proposal] | None:
    """Return a plan with experts in RAM, and the type of dense weights that keeps more in VRAM."""
    plan = _planned(facts, machine, options)
    found = plan and _Search(facts, machine, options, plan).of_dense()
    return (plan, found) if plan and found and plan.placement.shares_experts else None


class _Search(msgspec.Struct, frozen=True):
    facts: ModelFacts
    machine: Machine
    options: PlanOptions
    plan: Plan

    def proposals(self) -> tuple[Proposal, ...]:
        """Try each setting, the least change first that is enough, or else the most."""
        options, facts = self.options, self.facts
        least = max(_LEAST_CTX, options.min_ctx or 0)
        sizes = [n for n in CTX_STEPS if least <= n < self.plan.shape.n_ctx]
        is_f16 = options.cache_type in ("f16", "bf16") and can_cache(facts, "q8_0")
        smaller = replace(options, cache_type="q8_0")
        found = (
            self._first([("--kv-type q8_0", smaller, facts)] if is_f16 else []),
            self._first([(f"--ctx {n}", replace(options, n_ctx=n), facts) for n in sizes]),
            self.of_dense(),
        )
        some = [each for each in found if each and (each.is_enough or self.plan.uses_gpu)]
        enough = [each for each in some if each.is_enough]
        return tuple(sorted(enough or some, key=lambda each: each.request_s))

    def of_dense(self) -> Proposal | None:
        smaller = ((kind, with_dense(self.facts, kind)) for kind in DENSE_BITS)
        return self._first([(f"--dense {k}", self.options, facts) for k, facts in smaller if facts])

    def _first(self, tries: Sequence[tuple[str, PlanOptions, ModelFacts]]) -> Proposal | None:
        """Return the first that is enough, or else the last, as the user will ask for it."""
        for i, (flag, options, facts) in enumerate(tries, start=1):
            # PERF: one context first; all of them take ten times as long.
            fixed = replace(options, n_ctx=options.n_ctx or self.plan.shape.n_ctx)
            plan = _planned(facts, self.machine, fixed)
            if plan and fixed != options and (i == len(tries) or self._is_goal(plan)):
                plan = _planned(facts, self.machine, options)
            if plan and (i == len(tries) or self._is_goal(plan)):
                is_enough, speed = self._is_goal(plan), plan.speed
                if speed.request_s > self.plan.speed.request_s * (1 if is_enough else _CLEARLY):
                    return None
                return Proposal(flag, speed.request_s, speed.decode_tok_s, is_enough)
        return None

    def missing_bytes(self) -> int:
        """Return the VRAM that the largest GPU lacks for the context that is planned."""
        gpus, limit = self.machine.gpus, self.options.vram_bytes
        largest = max(gpus, key=lambda gpu: gpu.free_bytes)

        def fits(n_steps: int) -> bool:
            free, total = (n + n_steps * _STEP for n in (largest.free_bytes, largest.total_bytes))
            more = replace(largest, free_bytes=free, total_bytes=total)
            machine = replace(self.machine, gpus=tuple(more if g is largest else g for g in gpus))
            allowed = limit and limit + n_steps * _STEP
            options = replace(self.options, n_ctx=self.plan.shape.n_ctx, vram_bytes=allowed)
            plan = _planned(self.facts, machine, options)
            return plan is not None and self._is_goal(plan)

        n_steps = bisect_left(range(_MOST_STEPS), True, key=fits)
        return n_steps * _STEP if n_steps < _MOST_STEPS else 0

    def _is_goal(self, plan: Plan) -> bool:
        is_whole = not plan.placement.expert_bytes_on_host(self.facts)
        return plan.uses_gpu and (is_whole or not self.plan.uses_gpu)


def _planned(facts: ModelFacts, machine: Machine, options: PlanOptions) -> Plan | None:
    try:
        return make_plan(facts, machine, options)
    except DoesNotFitError:
        return None
