"""Say what a preset changes of a plan."""

from gptoss_local.machine.plan.facts import ModelFacts
from gptoss_local.machine.plan.result import Plan
from gptoss_local.types import Preset

_WORDS = {
    "n_seq": "answers at the same time",
    "n_ctx": "tokens of context",
    "n_batch": "tokens of a batch",
    "n_host_expert_layers": "layers with experts in RAM",
    "n_threads_prefill": "threads for prompts",
    "n_threads_decode": "threads for answers",
}


def changes(balanced: Plan, plan: Plan) -> dict[str, tuple[int, int]]:
    """Return the numbers that differ, by name: of the balanced plan, and of the other."""
    pairs = zip(_numbers(balanced), _numbers(plan), strict=True)
    return {name: pair for name, pair in zip(_WORDS, pairs, strict=True) if pair[0] != pair[1]}


def explain_preset(preset: Preset, facts: ModelFacts, balanced: Plan, plan: Plan) -> list[str]:
    """Say what a preset changes, and what it cannot."""
    found = changes(balanced, plan)
    parts = [f"{_WORDS[name]} ({old:,} to {new:,})" for name, (old, new) in found.items()]
    lines = [f"The preset {preset} changes {', '.join(parts) or 'nothing here'}."]
    if preset == "quiet" and plan.uses_gpu:
        if plan.placement.expert_bytes_on_host(facts):
            lines.append("CPU threads sleep while the GPU computes.")
        lines.append(
            "Only an administrator can lower a GPU's power: `sudo nvidia-smi --power-limit=WATTS`."
        )
    return lines


def _numbers(plan: Plan) -> tuple[int, ...]:
    shape = plan.shape
    return (
        shape.n_seq,
        shape.n_ctx,
        shape.n_batch,
        len(plan.placement.host_experts) + len(plan.placement.host_parts),
        plan.n_threads_prefill,
        plan.n_threads_decode,
    )
