"""Plans where the next model goes, from what this machine has free now."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import N_DRAFT_MAX
from gptoss_local.errors import DoesNotFitError
from gptoss_local.machine.hardware import Machine, read_machine
from gptoss_local.machine.plan.facts import ModelFacts, read_facts
from gptoss_local.machine.plan.measured import Tuning, measured_path
from gptoss_local.machine.plan.options import PlanOptions, plan_options
from gptoss_local.machine.plan.planner import FLOOR_CTX, make_plan, worth_s
from gptoss_local.machine.plan.result import Plan
from gptoss_local.models.store import ModelEntry
from gptoss_local.runner.retries import Attempt
from gptoss_local.settings import Settings

_BESIDE = 1.2  # a plan alongside other models may be worse than one without them by a fifth


def plan_load(
    model: Path | ModelFacts,
    settings: Settings,
    n_ctx: int | None,
    *,
    freed: Iterable[EngineClient] = (),
    attempt: Attempt = Attempt(),  # noqa: B008 (frozen)
    tuning: Tuning | None = None,
) -> Plan:
    """Plan the load of a model into what is free; asks the driver, so not in the event loop.

    Args:
        model: The file, or what is known of one that need not be on the disk.
        settings: The user's options.
        n_ctx: Context that a request needs; None leaves it to the plan.
        freed: Engines whose memory counts as free.
        attempt: What to leave free, after others that failed.
        tuning: What was measured of the model here.

    Raises:
        DoesNotFitError: there is no plan that keeps to the options.
        ModelLoadError: the file is not a gpt-oss model.
    """
    facts = read_facts(model) if isinstance(model, Path) else model
    machine, options = _situation(settings, n_ctx, attempt)
    return make_plan(facts, _without(machine, freed), options, tuning)


def choose_unload(
    path: Path,
    settings: Settings,
    n_ctx: int | None,
    others: Sequence[EngineClient],
    attempt: Attempt = Attempt(),  # noqa: B008 (frozen)
) -> EngineClient | None:
    """Return the loaded model to unload for another; None if both fit about as well together.

    Args:
        path: The file of the other.
        settings: The user's options.
        n_ctx: Context that it needs.
        others: The loaded ones, the first to go in front. The first that makes room by itself is
            returned, or else the first of all.
        attempt: What to leave free.

    Raises:
        DoesNotFitError: there is no room even without all of them.
    """
    if not others:
        return None
    facts = read_facts(path)
    machine, options = _situation(settings, n_ctx, attempt)
    alone = make_plan(facts, _without(machine, others), options)
    for gone in ([], *([each] for each in others)):
        try:
            plan = make_plan(facts, _without(machine, gone), options)
        except DoesNotFitError:
            continue
        if _is_as_good(facts, plan, alone, options):
            return gone[0] if gone else None
    return others[0]


def measured_file(entry: ModelEntry, settings: Settings) -> Path:
    """Return the file of what loads and `gptoss tune` have found out about a model here."""
    machine = read_machine(settings.models_dir)
    return measured_path(settings.cache_dir, entry.weights_id, machine)


def free_vram(settings: Settings) -> list[int]:
    """Return the bytes free on each GPU now; asks the driver."""
    return [gpu.free_bytes for gpu in read_machine(settings.models_dir).usable_gpus]


def _situation(
    settings: Settings, n_ctx: int | None, attempt: Attempt
) -> tuple[Machine, PlanOptions]:
    options = msgspec.structs.replace(
        plan_options(settings, N_DRAFT_MAX, min_ctx=n_ctx),
        extra_margin_bytes=attempt.extra_margin_bytes,
        maps_host=attempt.maps_host,
    )
    return read_machine(settings.models_dir), options


def _is_as_good(facts: ModelFacts, plan: Plan, other: Plan, options: PlanOptions) -> bool:
    has_context = plan.shape.n_ctx >= min(FLOOR_CTX, other.shape.n_ctx)
    worst_s = _BESIDE * worth_s(facts, other, options)
    return has_context and worth_s(facts, plan, options) <= worst_s


def _without(machine: Machine, engines: Iterable[EngineClient]) -> Machine:
    """Return the machine as it will be when these engines have ended."""
    gpus = list(machine.gpus)
    available_bytes = machine.available_bytes
    for engine in engines:
        for place, n_bytes in engine.loaded.buffer_bytes.items():
            index = place.removeprefix("CUDA")
            if place.startswith("CUDA") and index.isdigit() and int(index) < len(gpus):
                gpu = gpus[int(index)]
                free_bytes = min(gpu.total_bytes, gpu.free_bytes + n_bytes)
                gpus[int(index)] = msgspec.structs.replace(gpu, free_bytes=free_bytes)
                available_bytes += n_bytes if gpu.shares_ram else 0
            elif place != "CPU_Mapped":  # of which RAM is free already
                available_bytes += n_bytes
    return msgspec.structs.replace(
        machine,
        gpus=tuple(gpus),
        available_bytes=min(machine.total_bytes, available_bytes),
    )
