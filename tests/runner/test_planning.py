"""Plans at load time: commands for the engine, models that must go, too little memory."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from gptoss_local.api.models import LoadStatus
from gptoss_local.base.errors import DoesNotFitError, EngineCrashedError, ModelLoadError
from gptoss_local.base.settings import Settings
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import Load, StepTimes
from gptoss_local.machine.hardware import Machine
from gptoss_local.machine.plan.measured import (
    LoadOutcome,
    Measured,
    plan_id,
    read_measured,
    write_measured,
)
from gptoss_local.machine.plan.options import Attempt, PlanOptions
from gptoss_local.machine.plan.planner import make_plan
from gptoss_local.machine.plan.result import Plan
from gptoss_local.models.store import find_model
from gptoss_local.runner import loading, planning
from gptoss_local.runner.loading import LoadedModel
from gptoss_local.runner.manager import ModelManager
from gptoss_local.runner.planning import (
    STEP_BYTES,
    choose_unload,
    load_command,
    measured_file,
    next_attempt,
    plan_load,
)
from tests.plan.machines import GIB, LARGE, gpu, machine


def pretend(monkeypatch: pytest.MonkeyPatch, here: Machine) -> None:
    monkeypatch.setattr(planning, "read_machine", lambda _: here)


def engine_with(**buffer_bytes: int) -> EngineClient:
    """An engine as far as its memory is concerned."""
    return cast(EngineClient, SimpleNamespace(loaded=SimpleNamespace(buffer_bytes=buffer_bytes)))


def test_engines_that_go_give_back_what_they_have(
    nano_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, machine(gpu(8, 0.4), ram_gib=64))
    assert plan_load(nano_gguf, Settings(), None).devices == ()
    leaving = [engine_with(CUDA0=6 * GIB, CUDA_Host=GIB, CPU_Mapped=GIB)]
    plan = plan_load(nano_gguf, Settings(), None, freed=leaving)
    assert plan.devices == ("CUDA0",)
    assert plan.tensor_split == (9,)
    assert choose_unload(nano_gguf, Settings(gpu_layers=5), None, leaving) is leaving[0]
    pretend(monkeypatch, machine(gpu(8, 7), ram_gib=64))
    assert choose_unload(nano_gguf, Settings(), None, leaving) is None


def test_memory_by_vulkan_goes_back_to_the_card_that_has_it() -> None:
    cards = gpu(8, 1, device="Vulkan1"), gpu(8, 2, 1, device="Vulkan0")
    freed = planning.without(machine(*cards, backend="Vulkan"), [engine_with(Vulkan0=4 * GIB)])
    assert [card.free_bytes for card in freed.gpus] == [GIB, 6 * GIB]


def test_only_who_makes_room_leaves(nano_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of the list, unless another one alone is enough and that is not."""
    pretend(monkeypatch, machine(gpu(8, 0.4), ram_gib=64))
    on_cpu, on_gpu, also = engine_with(CPU=GIB), engine_with(CUDA0=6 * GIB), engine_with(CUDA0=GIB)
    wish = Settings(gpu_layers=5)
    assert choose_unload(nano_gguf, wish, None, [on_cpu, on_gpu, also]) is on_gpu
    assert choose_unload(nano_gguf, wish, None, [also, on_gpu]) is also
    with pytest.raises(DoesNotFitError):
        choose_unload(nano_gguf, wish, None, [on_cpu])


async def load_nano(settings: Settings) -> LoadedModel:
    """Load nano and let it go."""
    manager = ModelManager(settings)
    try:
        async with manager.use(find_model("nano", settings)) as model:
            return model
    finally:
        await manager.close()


def test_a_gpu_that_llama_cpp_lacks_is_a_clear_error(
    nano_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And proves that the plan reaches the engine."""
    pretend(monkeypatch, machine(gpu(8, 7.5)))
    with pytest.raises(ModelLoadError, match="no device CUDA0"):
        asyncio.run(load_nano(Settings(home=nano_home)))


class Refusing:
    """Stands for `load_model`: refuses with one error after the other, and keeps the plans."""

    def __init__(self, *errors: Exception, on_try: Callable[[int], None] | None = None) -> None:
        self.plans: list[Plan] = []
        self.statuses: list[LoadStatus] = []
        self._errors, self._on_try = errors, on_try

    async def __call__(
        self, _entry: Any, _info: Any, plan: Plan, _load: Any, _settings: Any, report: Any
    ) -> None:
        self.plans.append(plan)
        report(1.0)
        self.statuses.append(report.__self__.status)
        if self._on_try:
            self._on_try(len(self.plans))
        raise self._errors[min(len(self.plans), len(self._errors)) - 1]

    @property
    def in_vram(self) -> list[int]:
        return [sum(memory.total for memory in plan.placement.gpus) for plan in self.plans]


def load_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, refuse: Refusing, **more: Any
) -> None:
    """Try to load nano; the last error of `refuse` must come out."""
    monkeypatch.setattr(loading, "load_model", refuse)
    with pytest.raises((ModelLoadError, EngineCrashedError)) as raised:
        asyncio.run(load_nano(Settings(home=home, **more)))
    assert raised.value is refuse._errors[-1]


NO_VRAM = ModelLoadError("llama.cpp could not load it: unable to allocate CUDA0 buffer")


@pytest.mark.parametrize(
    ("error", "n_tries"),
    [
        (NO_VRAM, 3),
        (EngineCrashedError("it has stopped (signal 6): CUDA error: out of memory"), 3),
        (EngineCrashedError("it has stopped (signal 4)"), 1),
        (ModelLoadError("llama.cpp could not load it: a tensor is missing"), 1),
    ],
)
def test_what_does_not_fit_as_planned_is_planned_smaller(
    nano_home: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, n_tries: int
) -> None:
    pretend(monkeypatch, machine(gpu(8, 7.5)))
    refuse = Refusing(error)
    load_refused(nano_home, monkeypatch, refuse, vram="1536MiB")
    assert len(refuse.plans) == n_tries
    assert refuse.in_vram == sorted(refuse.in_vram, reverse=True)
    if n_tries > 1:
        assert refuse.in_vram[1] < refuse.in_vram[0]
        assert not refuse.plans[-1].uses_gpu  # the CPU comes last


def test_vram_that_another_program_takes_meanwhile(
    nano_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next plan is for the memory that is left then, and no smaller: so it keeps the GPU."""
    pretend(monkeypatch, machine(gpu(8, 7.5)))
    refuse = Refusing(
        NO_VRAM,
        ModelLoadError("another error"),
        on_try=lambda _: pretend(monkeypatch, machine(gpu(8, 1.25))),
    )
    load_refused(nano_home, monkeypatch, refuse)
    assert [plan.uses_gpu for plan in refuse.plans] == [True, True]
    assert refuse.in_vram[1] < GIB < refuse.in_vram[0]


def test_a_process_that_the_system_killed_for_ram_maps_its_weights(
    nano_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, machine(ram_gib=16))
    refuse = Refusing(EngineCrashedError("it died", was_killed=True))
    load_refused(nano_home, monkeypatch, refuse)
    assert [plan.repacks for plan in refuse.plans] == [True, False]


def test_a_load_is_remembered(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory, the cost of steps, and the margin: the next load measures nothing."""
    settings, commands = Settings(home=empty_home), []
    begin = EngineClient.start
    shutil.rmtree(settings.cache_dir / "measured")

    async def start(load: Load, **kwargs: Any) -> EngineClient:
        commands.append(load)
        return await begin(load, **kwargs)

    monkeypatch.setattr(EngineClient, "start", start)

    first = asyncio.run(load_nano(settings))
    path = measured_file(first.entry, settings)
    known = read_measured(path)
    assert known.outcome is not None
    assert known.steps is not None
    assert known.outcome.buffer_bytes == first.engine.loaded.buffer_bytes
    asyncio.run(load_nano(settings))
    assert commands[0].step_costs is None
    assert commands[1].step_costs == StepTimes(known.steps.seconds, known.steps.switch_s)
    assert read_measured(path) == known
    path.write_text("{")  # counts as none
    asyncio.run(load_nano(settings))
    assert commands[2].step_costs is None
    assert read_measured(path).outcome is not None


@pytest.mark.parametrize(
    ("needed", "options"),
    [(Attempt(STEP_BYTES), {"vram": "1536MiB"}), (Attempt(maps_host=True), {"cpu_moe": 2})],
)
def test_what_a_load_needed_is_kept(
    empty_home: Path,
    nano_gguf: Path,
    monkeypatch: pytest.MonkeyPatch,
    needed: Attempt,
    options: dict[str, Any],
) -> None:
    """A margin of VRAM, or the page cache in place of pinned memory."""
    pretend(monkeypatch, machine(gpu(8, 7.5)))
    settings = Settings(home=empty_home, **options)
    entry = find_model("nano", settings)
    plan = plan_load(nano_gguf, settings, None, attempt=needed)
    assert plan != plan_load(nano_gguf, settings, None)
    outcome = LoadOutcome(plan_id=plan_id(plan), attempt=needed, buffer_bytes={})
    write_measured(measured_file(entry, settings), Measured(outcome=outcome))
    refuse = Refusing(ModelLoadError("another error"))
    load_refused(empty_home, monkeypatch, refuse, **options)
    assert refuse.plans == [plan]


def test_gpus_that_are_hidden_get_no_layers(
    nano_home: Path, nano_gguf: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As by a CUDA_VISIBLE_DEVICES that we cannot follow: the plan is for the CPU."""
    pretend(monkeypatch, machine())
    settings = Settings(home=nano_home)
    entry = find_model("nano", settings)
    plan = plan_load(nano_gguf, settings, None)
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    assert load_command(entry, nano_gguf, plan, settings, Measured()).model.n_gpu_layers == -1
    (tmp_path / "libggml-cuda.so").touch()
    assert load_command(entry, nano_gguf, plan, settings, Measured()).model.n_gpu_layers == 0


def test_context_that_fits_nowhere_is_refused(
    nano_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, machine(ram_gib=2, available_bytes=round(0.6 * GIB)))
    assert plan_load(nano_gguf, Settings(), None).shape.n_ctx >= 4096
    with pytest.raises(DoesNotFitError, match="131,072 tokens"):
        plan_load(nano_gguf, Settings(), 131_072)
    assert DoesNotFitError.http_status == 507
    assert msgspec.json.encode(plan_load(nano_gguf, Settings(), None))


HERE = machine(gpu(16))
FREE = [gpu(16).free_bytes]


@pytest.mark.quick
def test_a_process_killed_for_ram_takes_no_more_ram_with_the_next_plan() -> None:
    """Less in VRAM would: so pinned weights are mapped, once, and after that nothing helps."""
    killed, pinned = EngineCrashedError("it died", was_killed=True), make_plan(LARGE, HERE)
    assert pinned.host.is_pinned
    second = next_attempt(Attempt(), pinned, killed, free_before=FREE, free_now=FREE)
    assert second == Attempt(maps_host=True)
    mapped = make_plan(LARGE, HERE, PlanOptions(attempt=Attempt(maps_host=True)))
    assert next_attempt(second, mapped, killed, free_before=FREE, free_now=FREE) is None


@pytest.mark.quick
def test_too_little_vram_leaves_more_of_it_each_time() -> None:
    plan, error, last = (
        make_plan(LARGE, HERE),
        ModelLoadError("failed to allocate"),
        Attempt(),
    )
    for n_steps in (1, 2, 4):
        found = next_attempt(last, plan, error, free_before=FREE, free_now=FREE)
        assert found is not None
        assert found.extra_margin_bytes == n_steps * STEP_BYTES
        last = found
    taken = [FREE[0] - GIB]
    assert next_attempt(last, plan, error, free_before=FREE, free_now=taken) == last
