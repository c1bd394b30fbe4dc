"""Plans each model for this machine: its place, its expected speed, and the one to try first."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import msgspec
from rich.filesize import decimal

from gptoss_local.api.gptoss import MemoryUse, ModelFit, ModelFits
from gptoss_local.base.errors import GptOssError
from gptoss_local.base.settings import Settings
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import N_DRAFT_MAX
from gptoss_local.machine.hardware import Machine, free_bytes, read_machine
from gptoss_local.machine.plan.facts import published_facts, read_facts
from gptoss_local.machine.plan.measured import measured_path, read_measured
from gptoss_local.machine.plan.options import plan_options
from gptoss_local.machine.plan.planner import make_plan
from gptoss_local.machine.plan.result import Plan
from gptoss_local.machine.plan.words import gib, rate
from gptoss_local.models.catalog import CatalogModel, catalog
from gptoss_local.models.store import ModelEntry, list_models
from gptoss_local.runner.planning import without

_READING_TOK_S = 10.0
_MBIT_S = 100


def all_fits(
    settings: Settings, n_ctx: int | None = None, *, freed: Sequence[EngineClient] = ()
) -> ModelFits:
    def plan_here(entry: ModelEntry) -> Plan:
        assert entry.path is not None
        file = measured_path(settings.cache_dir, entry.weights_id, machine)
        facts = read_facts(entry.path, entry.adapter)
        return make_plan(facts, machine, options, read_measured(file).tuning)

    here = list_models(settings)
    # PERF: once for all models, as with Vulkan this starts a process, 0.4 s.
    machine = without(read_machine(settings.models_dir), freed)
    options = plan_options(settings, N_DRAFT_MAX, min_ctx=n_ctx)
    names = {entry.name for entry in here}
    others = [m for m in catalog() if m.name not in names and m.layers and m.experts]
    ours = [entry for entry in here if entry.path]  # not built, nano would take a minute
    found = [_fit(entry.name, partial(plan_here, entry), machine) for entry in ours]
    offered = [fit_to_download(model, machine, settings, n_ctx) for model in others]
    suggested = suggestion(offered)
    return ModelFits(
        found + offered,
        is_new=not has_model(settings),
        suggested=suggested.name if suggested else "",
        advice=advice(suggested, settings),
    )


def fit_to_download(
    model: CatalogModel, machine: Machine, settings: Settings, n_ctx: int | None = None
) -> ModelFit:
    facts = published_facts(model.layers, model.experts)
    options = plan_options(settings, N_DRAFT_MAX, min_ctx=n_ctx)
    fit = _fit(model.name, lambda: make_plan(facts, machine, options), machine)
    problem = ""
    if fit.fits == "no":
        problem = f"does not fit; {model.needs.vram} VRAM and {model.needs.ram} RAM do"
    elif model.download_bytes > (free := free_bytes(settings.models_dir)):
        problem = f"no room: only {decimal(free)} of disk are free"
    return msgspec.structs.replace(
        fit,
        problem=problem,
        headline=_headline(fit, problem, facts.n_ctx_train),
        download_bytes=model.download_bytes,
        file_bytes=facts.weight_bytes,
        is_special=model.is_special,
    )


def suggestion(fits: Sequence[ModelFit]) -> ModelFit | None:
    """Return the largest model that is expected to answer at reading speed."""
    quick = (fit for fit in fits if not (fit.problem or fit.is_special))
    return max(
        (fit for fit in quick if fit.tokens_s >= _READING_TOK_S),
        key=lambda fit: fit.file_bytes,
        default=None,
    )


def advice(suggested: ModelFit | None, settings: Settings) -> str:
    if suggested is None:
        return f"No large model is expected to reach reading speed, {_READING_TOK_S:.0f} tokens/s."
    minutes = max(1, round(suggested.download_bytes * 8 / (_MBIT_S * 1e6) / 60))
    return (
        f"{suggested.name} is the suggestion: about {minutes} minutes at {_MBIT_S} Mbit/s, into\n"
        f"{settings.models_dir}. A download that is interrupted continues later."
    )


def has_model(settings: Settings) -> bool:
    return any(e.upstream or (e.path and not e.embedded) for e in list_models(settings))


def machine_facts(machine: Machine, settings: Settings) -> dict[str, str]:
    cards = [
        f"{gpu.name}, {gib(gpu.free_bytes)} of {gib(gpu.total_bytes)} are free"
        for gpu in machine.gpus
    ]
    if cards and not machine.usable_gpus:
        cards.append("not used by this build of llama.cpp: see gptoss doctor")
    n = machine.n_cores
    facts = {
        "GPU": "\n".join(cards) or "none that llama.cpp can use",
        "RAM": f"{gib(machine.available_bytes)} of {gib(machine.total_bytes)} are free",
        "CPU": f"{n} core{'s' * (n > 1)}" if n else "",
        "Disk": f"{decimal(free_bytes(settings.models_dir))} are free",
    }
    return {name: text for name, text in facts.items() if text}


def _fit(name: str, plan: Callable[[], Plan], machine: Machine) -> ModelFit:
    try:
        return as_fit(name, plan(), machine)
    except GptOssError:  # too large, or a file that is broken: either way it cannot be used
        return ModelFit(name, "no")


def as_fit(name: str, plan: Plan, machine: Machine) -> ModelFit:
    host, weights = plan.host, plan.host.mapped + plan.host.weights
    taken = host.total - host.checkpoints
    ram = _memory("RAM", machine.total_bytes, machine.available_bytes, weights, taken)
    n_ctx, tokens_s = plan.shape.n_ctx, plan.speed.decode_tok_s
    fit = ModelFit(name, "ram", n_ctx=n_ctx, tokens_s=tokens_s, memory=[ram])
    if not plan.uses_gpu:
        return fit
    place: Literal["vram", "split"] = "vram" if plan.vram_share > 0.999 else "split"
    cards = zip(machine.usable_gpus, plan.placement.gpus, strict=False)
    used = [(gpu, memory) for gpu, memory in cards if memory.total]
    vram = _memory(
        " + ".join(gpu.name.removeprefix("NVIDIA ").removeprefix("GeForce ") for gpu, _ in used),
        sum(gpu.total_bytes for gpu, _ in used),
        sum(gpu.free_bytes for gpu, _ in used),
        sum(memory.weights for _, memory in used),
        sum(memory.total for _, memory in used),
    )
    memory = [vram] if place == "vram" else [vram, ram]
    return msgspec.structs.replace(fit, fits=place, vram_share=plan.vram_share, memory=memory)


def _memory(name: str, total: int, free: int, weights: int, taken: int) -> MemoryUse:
    """More may be mapped than is free: the bar is full then."""
    return MemoryUse(name, total, min(weights, free), taken - weights, max(0, free - taken))


def _headline(fit: ModelFit, problem: str, n_ctx_train: int) -> str:
    if problem:
        return f"{fit.name}: {problem}"
    card = fit.memory[0].name
    place = {
        "vram": f"fits your {card}",
        "split": f"runs on your {card}, with a part in RAM",
    }.get(fit.fits, "runs on this machine's CPU")
    context = f"{fit.n_ctx:,} tokens" if fit.n_ctx < n_ctx_train else "all"
    return f"{fit.name} {place}: about {rate(fit.tokens_s)} tokens/s, {context} of its context"
