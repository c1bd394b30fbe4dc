"""Plans each model for this machine: its place, its expected speed, and the one to try first."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import msgspec
from rich.filesize import decimal

from gptoss_local.api.gptoss import ModelFit, ModelFits
from gptoss_local.base.errors import GptOssError
from gptoss_local.base.settings import Settings
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import N_DRAFT_MAX
from gptoss_local.machine.hardware import Machine, free_bytes, read_machine
from gptoss_local.machine.plan.facts import published_facts
from gptoss_local.machine.plan.measured import read_measured
from gptoss_local.machine.plan.options import plan_options
from gptoss_local.machine.plan.planner import make_plan
from gptoss_local.machine.plan.result import Plan
from gptoss_local.machine.plan.words import gib
from gptoss_local.models.catalog import CatalogModel, catalog
from gptoss_local.models.store import ModelEntry, find_model, list_models
from gptoss_local.runner.planning import measured_file, plan_load, without

_READING_TOK_S = 10.0
_MBIT_S = 100


def all_fits(
    settings: Settings, n_ctx: int | None = None, *, freed: Sequence[EngineClient] = ()
) -> ModelFits:
    def plan_here(entry: ModelEntry) -> Plan:
        entry.ensure_file(settings)
        built = find_model(entry.name, settings)
        known = read_measured(measured_file(built, settings))
        return plan_load(built, settings, n_ctx, freed=freed, tuning=known.tuning)

    here = list_models(settings)
    machine = without(read_machine(settings.models_dir), freed)
    names = {entry.name for entry in here}
    others = [m for m in catalog() if m.name not in names and m.layers and m.experts]
    ours = [entry for entry in here if entry.upstream is None]
    found = [_fit(entry.name, partial(plan_here, entry)) for entry in ours]
    offered = [fit_to_download(model, machine, settings, n_ctx) for model in others]
    suggested = suggestion(offered)
    return ModelFits(
        found + offered,
        is_new=not has_model(settings),
        suggested=suggested.name if suggested else "",
        advice=advice(suggested, settings),
        machine=machine_facts(machine, settings),
    )


def fit_to_download(
    model: CatalogModel, machine: Machine, settings: Settings, n_ctx: int | None = None
) -> ModelFit:
    facts = published_facts(model.layers, model.experts)
    options = plan_options(settings, N_DRAFT_MAX, min_ctx=n_ctx)
    fit = _fit(model.name, lambda: make_plan(facts, machine, options))
    problem = ""
    if fit.fits == "no":
        problem = f"does not fit; {model.needs.vram} VRAM and {model.needs.ram} RAM do"
    elif model.download_bytes > (free := free_bytes(settings.models_dir)):
        problem = f"no room: only {decimal(free)} of disk are free"
    return msgspec.structs.replace(
        fit,
        problem=problem,
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
        return (
            f"No large model is expected to reach reading speed, {_READING_TOK_S:.0f} tokens/s, "
            "here,\nso nano is the suggestion."
        )
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


def _fit(name: str, plan: Callable[[], Plan]) -> ModelFit:
    try:
        return as_fit(name, plan())
    except GptOssError:  # too large, or a file that is broken: either way it cannot be used
        return ModelFit(name, "no")


def as_fit(name: str, plan: Plan) -> ModelFit:
    fit = ModelFit(name, "ram", n_ctx=plan.shape.n_ctx, tokens_s=plan.speed.decode_tok_s)
    if not plan.uses_gpu:
        return fit
    place: Literal["vram", "split"] = "vram" if plan.vram_share > 0.999 else "split"
    return msgspec.structs.replace(fit, fits=place, vram_share=plan.vram_share)
