"""Plans where the next model goes, from free memory now, and smaller after a failed load."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from gptoss_local.base.errors import DoesNotFitError, EngineCrashedError, EngineError
from gptoss_local.base.settings import Settings
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import N_DRAFT_MAX, Load, PrefixOptions
from gptoss_local.harmony.vocabulary import MESSAGE_ENDS
from gptoss_local.machine.hardware import Machine, llama_backend, read_machine
from gptoss_local.machine.plan.facts import ModelFacts, read_facts
from gptoss_local.machine.plan.measured import Measured, Tuning, measured_path, plan_id
from gptoss_local.machine.plan.options import OBJECTIVES, Attempt, plan_options
from gptoss_local.machine.plan.planner import FLOOR_CTX, make_plan, worth_s
from gptoss_local.machine.plan.result import Plan
from gptoss_local.models.store import ModelEntry

_BESIDE = 1.2  # a plan alongside other models may be worse than one without them by a fifth
MAX_TRIES = 6
_SLACK_BYTES = 128 * 2**20  # that the graph may take beyond its prediction, of the plan's margin
STEP_BYTES = 512 * 2**20
_TAKEN_BYTES = 128 * 2**20  # less than this comes and goes with every window


def next_attempt(
    last: Attempt, plan: Plan, error: EngineError, *, free_before: list[int], free_now: list[int]
) -> Attempt | None:
    """Return a smaller attempt after a failure, by free bytes of GPUs; None if none helps."""
    was_killed = isinstance(error, EngineCrashedError) and error.was_killed
    if plan.host.weights and (was_killed or "allocate CPU" in error.message):
        return msgspec.structs.replace(last, maps_host=True)
    if was_killed:
        return None  # RAM ran out all the same, and less in VRAM would take more of it
    is_memory = "alloc" in error.message or "out of memory" in error.message
    if not plan.uses_gpu or not is_memory:
        return None
    pairs = zip(free_before, free_now, strict=False)
    if any(now < before - _TAKEN_BYTES for before, now in pairs):
        return last  # another program has taken it; the next plan sees the rest
    margin_bytes = max(STEP_BYTES, 2 * last.extra_margin_bytes)
    return msgspec.structs.replace(last, extra_margin_bytes=margin_bytes)


def plan_load(
    model: ModelEntry | Path | ModelFacts,
    settings: Settings,
    n_ctx: int | None,
    *,
    freed: Iterable[EngineClient] = (),
    attempt: Attempt = Attempt(),  # noqa: B008 (frozen)
    tuning: Tuning | None = None,
) -> Plan:
    """Plan the load of a model into free memory; asks the driver, so not in the event loop."""
    facts = _facts(model)
    machine = read_machine(settings.models_dir)
    options = plan_options(settings, N_DRAFT_MAX, min_ctx=n_ctx, attempt=attempt)
    return make_plan(facts, without(machine, freed), options, tuning)


def choose_unload(
    model: ModelEntry | Path,
    settings: Settings,
    n_ctx: int | None,
    others: Sequence[EngineClient],
    attempt: Attempt = Attempt(),  # noqa: B008 (frozen)
) -> EngineClient | None:
    """Return the loaded model to unload for another; None if both fit about as well together.

    It is the first of `others` that makes room by itself, or else the first of all.
    """
    if not others:
        return None
    facts = _facts(model)
    machine = read_machine(settings.models_dir)
    options = plan_options(settings, N_DRAFT_MAX, min_ctx=n_ctx, attempt=attempt)
    alone = make_plan(facts, without(machine, others), options)
    n_ctx_least = min(FLOOR_CTX, alone.shape.n_ctx)
    worst_s = _BESIDE * worth_s(facts, alone, options)
    for gone in ([], *([each] for each in others)):
        try:
            plan = make_plan(facts, without(machine, gone), options)
        except DoesNotFitError:
            continue
        if plan.shape.n_ctx >= n_ctx_least and worth_s(facts, plan, options) <= worst_s:
            return gone[0] if gone else None
    return others[0]


def _facts(model: ModelEntry | Path | ModelFacts) -> ModelFacts:
    if isinstance(model, ModelFacts):
        return model
    if isinstance(model, Path):
        return read_facts(model)
    assert model.path is not None  # nothing is planned before its file is built
    return read_facts(model.path, model.adapter)


def measured_file(entry: ModelEntry, settings: Settings) -> Path:
    machine = read_machine(settings.models_dir)
    return measured_path(settings.cache_dir, entry.weights_id, machine)


def free_vram(settings: Settings) -> list[int]:
    return [gpu.free_bytes for gpu in read_machine(settings.models_dir).usable_gpus]


def load_command(
    entry: ModelEntry, path: Path, plan: Plan, settings: Settings, known: Measured
) -> Load:
    """Return the command to load as planned; with experts on the host, new plans are rehearsed."""
    steps = known.steps if known.steps and known.steps.are_of(plan) else None
    is_proven = known.outcome is not None and known.outcome.plan_id == plan_id(plan)
    # PERF: asking takes 1.4 s, for the vocabulary; without experts on the host a load is as quick
    gpus = plan.placement.gpus if plan.vram_share < 1 and not is_proven else ()
    params = plan.model_params
    if not plan.n_gpus and llama_backend() == "CPU":  # another one's GPUs are filled by llama.cpp
        params = msgspec.structs.replace(params, n_gpu_layers=settings.gpu_layers)
    return Load(
        model_path=str(path),
        adapter_path=str(entry.adapter or ""),
        model=params,
        context=plan.context_params,
        prefixes=PrefixOptions(
            checkpoint_bytes=plan.host.checkpoints,
            boundary_tokens=MESSAGE_ENDS,
            folder=str(settings.prefix_dir),
            history=str(settings.history_path),
            disk_bytes=settings.prefix_disk_bytes,
            save_after_s=settings.prefix_save_s,
            keep_s=settings.prefix_keep_s,
            model_digest=entry.weights_id,
        ),
        is_quiet=OBJECTIVES[settings.preset].is_quiet,
        offload_min_batch=plan.speed.offload_min_batch,
        step_costs=steps.times if steps else None,
        budget_bytes={
            name: gpu.compute + _SLACK_BYTES
            for name, gpu in zip(plan.device_names, gpus, strict=False)
            if gpu.total
        },
    )


def without(machine: Machine, engines: Iterable[EngineClient]) -> Machine:
    """Return the machine as if the engines had freed their memory."""
    gpus = list(machine.gpus)
    available_bytes = machine.available_bytes
    for engine in engines:
        for place, n_bytes in engine.loaded.buffer_bytes.items():
            if place in machine.device_names:
                index = machine.device_names.index(place)
                gpu = gpus[index]
                free_bytes = min(gpu.total_bytes, gpu.free_bytes + n_bytes)
                gpus[index] = msgspec.structs.replace(gpu, free_bytes=free_bytes)
                available_bytes += n_bytes if gpu.shares_ram else 0
            elif place != "CPU_Mapped":  # of which RAM is free already
                available_bytes += n_bytes
    return msgspec.structs.replace(
        machine,
        gpus=tuple(gpus),
        available_bytes=min(machine.total_bytes, available_bytes),
    )
