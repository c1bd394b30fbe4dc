"""Measures what a model does on this machine, for the planner and for later loads.

In an engine process of its own, loaded as the planner says.
"""

import asyncio
import time
from collections.abc import Callable

import msgspec

from gptoss_local.engine.client import EngineClient
from gptoss_local.machine.plan.facts import read_facts
from gptoss_local.machine.plan.measured import Measured, Steps, write_measured
from gptoss_local.machine.plan.result import Plan
from gptoss_local.models.store import ModelEntry, find_model
from gptoss_local.runner.calibration import judge
from gptoss_local.runner.loading import load_command
from gptoss_local.runner.planning import measured_file, plan_load
from gptoss_local.settings import Settings


class TuneResult(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements, and the plan before and after them."""

    model: str
    seconds: float
    before: Plan
    after: Plan
    measured: Measured
    path: str


async def tune(
    entry: ModelEntry, settings: Settings, on_progress: Callable[[float], None]
) -> TuneResult:
    """Load a model, measure it, and keep what was found.

    Another copy of the model in a server takes memory from this one. Thread counts that the user
    has set are not tuned. `on_progress` gets 0.0 .. 1.0 while the weights are read.

    Raises:
        DoesNotFitError: there is no room for the model.
        ModelLoadError, EngineCrashedError: it cannot be loaded.
    """
    path = await asyncio.to_thread(entry.ensure_file, settings)
    entry = find_model(entry.name, settings)  # an embedded model has a file now
    known_path = await asyncio.to_thread(measured_file, entry, settings)
    before = await asyncio.to_thread(plan_load, path, settings, None)
    load = load_command(entry, path, before, settings, Measured())
    start_s = time.monotonic()
    tuned = await EngineClient.tune(load, on_progress=on_progress)
    seconds = time.monotonic() - start_s
    tuning = judge(read_facts(path), before, tuned)
    after = await asyncio.to_thread(plan_load, path, settings, None, tuning=tuning)
    costs = tuned.step_costs
    steps = Steps.now(after, costs) if costs else None
    measured = Measured(tuning=tuning, steps=steps)  # a margin that a load needed is tried again
    await asyncio.to_thread(write_measured, known_path, measured)
    return TuneResult(
        model=entry.name,
        seconds=round(seconds, 2),
        before=before,
        after=after,
        measured=measured,
        path=str(known_path),
    )
