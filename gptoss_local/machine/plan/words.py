"""A plan's reasons in sentences."""

from msgspec.structs import replace

from gptoss_local.base.types import Preset
from gptoss_local.machine.hardware import Machine
from gptoss_local.machine.nvidia import Gpu
from gptoss_local.machine.plan.facts import EXPERT_PARTS, ModelFacts
from gptoss_local.machine.plan.memory import all_cache_bytes
from gptoss_local.machine.plan.nearest import Nearest, Proposal
from gptoss_local.machine.plan.options import N_ANSWER, N_PROMPT, PlanOptions
from gptoss_local.machine.plan.planner import FLOOR_CTX, half_ctx_costs
from gptoss_local.machine.plan.result import Plan

_WORDS = {
    "n_seq": "answers at the same time",
    "n_ctx": "tokens of context",
    "n_batch": "tokens of a batch",
    "n_host_expert_layers": "layers with experts in RAM",
    "n_threads_prefill": "threads for prompts",
    "n_threads_decode": "threads for answers",
}


def explain(
    facts: ModelFacts, machine: Machine, options: PlanOptions, plan: Plan, *, is_tuned: bool = False
) -> list[str]:
    lines = [
        *(_on_gpu(facts, machine, options, plan) if plan.uses_gpu else _no_gpu(machine, options)),
        *_beyond(facts, options),
        *_host(facts, machine, plan),
        _context(facts, options, plan),
        *_cache(facts, plan),
        *_speed(facts, options, plan, is_tuned=is_tuned),
    ]
    if plan.speed.assumed:
        lines.append(f"Not known here, and assumed: {', '.join(plan.speed.assumed)}.")
    return lines


def no_code(machine: Machine, gpu: Gpu) -> str:
    capability = ".".join(map(str, gpu.compute_capability or ()))
    return (
        f"GPU {gpu.index} ({gpu.name}) is not used: llama.cpp is built with CUDA "
        f"{machine.cuda_build} here, which has no code for compute capability {capability}."
    )


def gib(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:.1f} GiB"


def rate(tokens_s: float) -> str:
    return f"{tokens_s:,.0f}" if tokens_s >= 10 else f"{tokens_s:.2g}"


def _on_gpu(facts: ModelFacts, machine: Machine, options: PlanOptions, plan: Plan) -> list[str]:
    placement, lines = plan.placement, []
    n_host_layers = placement.n_host_layers(facts)
    if n_host_layers:
        lines.append(
            f"The first {n_host_layers} of {facts.n_layers} layers are on the host, as requested."
        )
    if placement.shares_experts:
        lines.append(_experts(facts, machine, options, plan))
    elif not n_host_layers:
        lines.append("The whole model is in VRAM, but for the embedding table.")
    for gpu, n in zip(machine.usable_gpus, placement.layers_per_gpu, strict=True):
        if not machine.has_code_for(gpu):
            lines.append(no_code(machine, gpu))
        elif not n:
            lines.append(
                f"GPU {gpu.index} ({gpu.name}) is left out: too small, or slower than without it."
            )
        elif not replace(machine, cuda_build=13).has_code_for(gpu):
            lines.append(
                f"GPU {gpu.index} ({gpu.name}) needs a build of llama.cpp with CUDA 12; "
                "13 has no code for it."
            )
    return lines


def _experts(facts: ModelFacts, machine: Machine, options: PlanOptions, plan: Plan) -> str:
    whole, parts = plan.placement.host_experts, plan.placement.host_parts
    n_host_layers = plan.placement.n_host_layers(facts)
    of_host = sum(facts.layer_expert_bytes[:n_host_layers])
    n_bytes = plan.placement.expert_bytes_on_host(facts) - of_host
    n_tensors = sum(len(names) for _, names in parts)
    also = f" and {n_tensors} of {len(EXPERT_PARTS) * len(parts)} tensors more" if parts else ""
    why = "as VRAM is too small for more"
    if options.n_cpu_moe is not None:
        why = "as requested"
    elif limit := _limit(machine, options):
        why = f"as no more than {limit} of a GPU may be used"
    steps = "Every step brings those that it uses"
    if (n_tokens := plan.speed.offload_min_batch) > 1:
        steps = f"Steps of {n_tokens} tokens or more bring those that they use"
    return (
        f"Attention, cache and head{' of the others' if n_host_layers else ''} are in VRAM; the "
        f"experts of {len(whole)} of {facts.n_layers} layers{also}, {gib(n_bytes)}, are in RAM, "
        f"{why}. A token reads {facts.used_fraction:.1%} of them. {steps} to the GPU."
    )


def _beyond(facts: ModelFacts, options: PlanOptions) -> list[str]:
    """Name wishes for more layers than there are, which mean all of them."""
    wishes = (
        (options.n_gpu_layers, facts.n_layers + 1, "layers on the GPU, and the model has"),
        (options.n_cpu_moe, facts.n_layers, "layers with experts in RAM, and the model has"),
    )
    return [f"{n:,} {what} {most}." for n, most, what in wishes if n is not None and n > most]


def explain_nearest(near: Nearest, plan: Plan, model: str) -> str:
    """Say what is missing for all experts in VRAM, or for a GPU, and which setting would do."""
    text = "All experts would be in VRAM" if near.goal == "experts" else "A GPU would be used"
    if near.missing_bytes:
        text = f"{text} with {gib(near.missing_bytes)} more"
    elif not any(each.is_enough for each in near.proposals):
        text = "No amount of VRAM would change that"
    now = f"instead of {_seconds(plan.speed.request_s)} and {rate(plan.speed.decode_tok_s)}"
    ways = [
        f"{_flag(each, model)} ({_seconds(each.request_s)}, answers {rate(each.decode_tok_s)} "
        f"tokens/s{'' if i else f', {now}'})"
        for i, each in enumerate(near.proposals)
    ]
    if not ways:
        return f"{text}."
    how = ", or with" if near.proposals[0].is_enough else "; fewer would be in RAM with"
    return f"{text}{how} {', or '.join(ways)}."


def _flag(each: Proposal, model: str) -> str:
    return f"`gptoss pull {model} {each.flag}`" if "dense" in each.flag else each.flag


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"


def _limit(machine: Machine, options: PlanOptions) -> str:
    limit = options.vram_bytes
    is_less = limit is not None and any(limit < gpu.free_bytes for gpu in machine.usable_gpus)
    return gib(limit or 0) if is_less else ""


def _no_gpu(machine: Machine, options: PlanOptions) -> list[str]:
    if options.n_gpu_layers == 0:
        why = "No layer is on a GPU, as requested."
    elif not machine.gpus:
        why = "There is no GPU that llama.cpp can use, so the CPU computes everything."
    elif machine.backend == "CPU":
        why = "This build of llama.cpp has neither CUDA nor Vulkan, so the GPU is not used."
    elif not any(map(machine.has_code_for, machine.gpus)):
        why = " ".join(no_code(machine, gpu) for gpu in machine.gpus)
    else:
        limit = _limit(machine, options)
        vram = f"{limit} of each GPU, as requested," if limit else "VRAM"
        why = f"{vram} is too small even without experts, or would be slower than the CPU alone."
    has_wish = options.n_gpu_layers or options.n_cpu_moe is not None
    return [f"{why} Settings for its layers have no effect." if has_wish else why]


def _host(facts: ModelFacts, machine: Machine, plan: Plan) -> list[str]:
    if plan.host.is_pinned:
        return [f"{gib(plan.host.weights)} of weights in RAM are pinned, for fast copies."]
    if not plan.placement.expert_bytes_on_host(facts):
        return []
    if plan.host.missing_share(machine.available_bytes):
        return [
            f"RAM is too small for the weights ({gib(machine.available_bytes)} are free): parts "
            "are read from the disk again and again."
        ]
    if not plan.uses_gpu:
        return []
    limit = gib(machine.pinnable_bytes) if machine.pinnable_bytes is not None else "unknown"
    return [f"Weights in RAM are mapped, not pinned (limit: {limit}): long prompts are slower."]


def _context(facts: ModelFacts, options: PlanOptions, plan: Plan) -> str:
    n_ctx, n_wished = plan.shape.n_ctx, options.n_ctx
    shared = f", shared by {plan.shape.n_seq} answers" if plan.shape.n_seq > 1 else ""
    text = f"A context of {n_ctx:,} tokens{shared}"
    if n_wished is not None and n_wished <= facts.n_ctx_train:
        if n_ctx == n_wished:
            return f"{text}, as requested."
        return f"{text}: {n_wished:,} were requested; it grows by 256."
    if n_wished is not None:
        return f"{text}: the most that the model supports; {n_wished:,} were requested."
    if n_ctx >= facts.n_ctx_train:
        return f"{text}: the most that the model supports."
    if not plan.uses_gpu:
        return f"{text}: more takes RAM, and minutes to read on a CPU; --ctx asks for it."
    if n_ctx < FLOOR_CTX:
        return f"{text}: more does not fit."
    return (
        f"{text}: weights and batches make better use of the memory here; for a prompt that needs "
        "more, the model is loaded again."
    )


def _cache(facts: ModelFacts, plan: Plan) -> list[str]:
    if (kind := plan.shape.cache_type) == "f16":
        return []
    plain = replace(plan.shape, cache_type="f16")
    size, usual = (gib(all_cache_bytes(facts, shape)) for shape in (plan.shape, plain))
    return [f"Keys and values are stored as {kind}, as requested: {size} instead of {usual}."]


def _speed(facts: ModelFacts, options: PlanOptions, plan: Plan, *, is_tuned: bool) -> list[str]:
    speed, half = plan.speed, half_ctx_costs(facts, plan, options) - 1
    context = "" if options.n_ctx or not half else f"; half the context counts as {half:.0%} more"
    until = "its first load" if plan.placement.shares_experts else "`gptoss tune`"
    basis = f"until {until} has measured it"
    if is_tuned:
        basis = "corrected by what was measured here"
    n_rows = options.objective.n_rows(plan.shape.n_seq, plan.shape.n_ctx)
    several = f"{n_rows} requests at the same time, of " if n_rows > 1 else ""
    return [
        f"Expected: prompts {rate(speed.prefill_tok_s)} tokens/s, bound by {speed.prefill_bound}; "
        f"answers {rate(speed.decode_tok_s)} tokens/s, bound by {speed.decode_bound}. "
        f"An estimate, {basis}.",
        f"That is {n_rows * speed.request_s:.1f} s for {several}{N_PROMPT:,} tokens read and "
        f"{N_ANSWER} written, by which this plan was chosen{context}.",
    ]


def changes(balanced: Plan, plan: Plan) -> dict[str, tuple[int, int]]:
    pairs = zip(_WORDS, _numbers(balanced), _numbers(plan), strict=True)
    return {name: (old, new) for name, old, new in pairs if old != new}


def _numbers(plan: Plan) -> tuple[int, ...]:
    shape, placement = plan.shape, plan.placement
    n_host_expert_layers = len(placement.host_experts) + len(placement.host_parts)
    sizes = shape.n_seq, shape.n_ctx, shape.n_batch, n_host_expert_layers
    return *sizes, plan.n_threads_prefill, plan.n_threads_decode


def explain_preset(preset: Preset, facts: ModelFacts, balanced: Plan, plan: Plan) -> list[str]:
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
