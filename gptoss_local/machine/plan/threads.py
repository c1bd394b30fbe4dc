"""Choose the number of CPU threads for prompts and for answers."""

from gptoss_local.machine.hardware import Machine
from gptoss_local.machine.plan.facts import ModelFacts
from gptoss_local.machine.plan.measured import Tuning
from gptoss_local.machine.plan.options import PlanOptions
from gptoss_local.machine.plan.placement import Placement

_SMALL_BYTES = 1_000_000_000
"""Below this a decode step is too short for CPU threads to share. PERF: nano takes 4.4 ms with one
thread or two, and many times that when a second thread has to wait for a busy core."""


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

    They spin while they wait, so if another program keeps one from its core, all others wait for
    it, in every layer. PERF: 20b, 11 GiB of VRAM, 16 cores without SMT next to two busy programs:
    llama-server, whose threads spin as ours do, takes 234 ms a token with 16 threads and 9.7 with
    14. On an idle machine, 120b takes 44.2, 44.9 and 44.3 ms with 16, 15 and 14.
    """
    n_cores = machine.n_logical_cores or 2 * (machine.n_cores or 1)
    return max(1, n_cores - max(1, n_cores // 8))
