"""Where the next model goes: plans from what this machine has free now."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import N_DRAFT_MAX
from gptoss_local.errors import DoesNotFitError
from gptoss_local.hardware import Machine, read_machine
from gptoss_local.plan.facts import ModelFacts, read_facts
from gptoss_local.plan.outcome import Plan
from gptoss_local.plan.planner import FLOOR_CTX, make_plan, worth_s
from gptoss_local.plan.wishes import Wishes, wishes_of
from gptoss_local.settings import Settings

STEP_BYTES = 512 * 2**20
"""How much more of each GPU a plan leaves free after one that failed."""

_BESIDE = 1.2  # a plan beside other models may be worse than one without them by a fifth


def plan_load(
    path: Path,
    settings: Settings,
    n_ctx: int | None,
    *,
    freed: Iterable[EngineClient] = (),
    extra_margin_bytes: int = 0,
) -> Plan:
    """Plan the load of a GGUF into what is free; asks the driver, so not in the event loop.

    Args:
        path: The file.
        settings: The user's wishes.
        n_ctx: Context that a request needs; None leaves it to the plan.
        freed: Engines whose memory counts as free.
        extra_margin_bytes: More than the usual to leave free on each GPU.

    Raises:
        DoesNotFitError: there is no plan that keeps to the wishes.
        ModelLoadError: the file is no gpt-oss.
    """
    machine, wishes = _situation(settings, n_ctx)
    wishes = msgspec.structs.replace(wishes, extra_margin_bytes=extra_margin_bytes)
    return make_plan(read_facts(path), _without(machine, freed), wishes)


def fits_beside(
    path: Path, settings: Settings, n_ctx: int | None, others: list[EngineClient]
) -> bool:
    """Whether a model would have about as good a plan beside loaded ones as without them."""
    facts = read_facts(path)
    machine, wishes = _situation(settings, n_ctx)
    try:
        beside = make_plan(facts, machine, wishes)
    except DoesNotFitError:
        return False
    alone = make_plan(facts, _without(machine, others), wishes)
    return _is_as_good(facts, beside, alone)


def _situation(settings: Settings, n_ctx: int | None) -> tuple[Machine, Wishes]:
    return read_machine(settings.models_dir), wishes_of(settings, N_DRAFT_MAX, min_ctx=n_ctx)


def _is_as_good(facts: ModelFacts, plan: Plan, other: Plan) -> bool:
    has_context = plan.shape.n_ctx >= min(FLOOR_CTX, other.shape.n_ctx)
    return has_context and worth_s(facts, plan) <= _BESIDE * worth_s(facts, other)


def _without(machine: Machine, engines: Iterable[EngineClient]) -> Machine:
    """The machine as it will be when these engines have ended."""
    gpus = list(machine.gpus)
    available_bytes = machine.available_bytes
    for engine in engines:
        for place, n_bytes in engine.loaded.buffer_bytes.items():
            index = place.removeprefix("CUDA")
            if place.startswith("CUDA") and index.isdigit() and int(index) < len(gpus):
                gpu = gpus[int(index)]
                free_bytes = min(gpu.total_bytes, gpu.free_bytes + n_bytes)
                gpus[int(index)] = msgspec.structs.replace(gpu, free_bytes=free_bytes)
            elif place != "CPU_Mapped":  # of which RAM is free already
                available_bytes += n_bytes
    return msgspec.structs.replace(
        machine,
        gpus=tuple(gpus),
        available_bytes=min(machine.total_bytes, available_bytes),
    )
