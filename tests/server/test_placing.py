"""Plans at load time: what the engine is told, who has to go, what happens when memory is short."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import psutil
import pytest

from gptoss_local.engine.client import EngineClient
from gptoss_local.errors import DoesNotFitError, EngineCrashedError, ModelLoadError
from gptoss_local.hardware import Machine
from gptoss_local.plan.outcome import Plan
from gptoss_local.server import manager as manager_module
from gptoss_local.server import placing
from gptoss_local.server.manager import ModelManager
from gptoss_local.server.placing import fits_beside, plan_load
from gptoss_local.settings import Settings
from tests.plan.machines import GIB, gpu, machine


def pretend(monkeypatch: pytest.MonkeyPatch, here: Machine) -> None:
    monkeypatch.setattr(placing, "read_machine", lambda _: here)


def engine_with(**buffer_bytes: int) -> EngineClient:
    """An engine as far as its memory is concerned."""
    return cast(EngineClient, SimpleNamespace(loaded=SimpleNamespace(buffer_bytes=buffer_bytes)))


def test_without_a_gpu_as_ever(nano_gguf: Path) -> None:
    plan = plan_load(nano_gguf, Settings(), None)
    assert plan.devices is None or plan.uses_gpu
    if not plan.uses_gpu:
        n_cores = psutil.cpu_count(logical=False)
        assert (plan.shape.n_ctx, plan.shape.n_batch, plan.shape.n_seq) == (32_768, 512, 4)
        assert (plan.n_threads_prefill, plan.n_threads_decode) == (n_cores, 1)
        assert (plan.load_mode, plan.placement.tensor_overrides()) == ("auto", ())
    assert plan_load(nano_gguf, Settings(), 50_000).shape.n_ctx >= 50_000
    assert plan_load(nano_gguf, Settings(context_length=4096), 2048).shape.n_ctx == 4096
    assert plan_load(nano_gguf, Settings(context_length=4096), 9000).shape.n_ctx == 9216


def test_engines_that_go_give_back_what_they_have(
    nano_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, machine(gpu(8, 0.4), ram_gib=64))
    assert plan_load(nano_gguf, Settings(), None).devices == ()
    leaving = [engine_with(CUDA0=6 * GIB, CUDA_Host=GIB, CPU_Mapped=GIB)]
    plan = plan_load(nano_gguf, Settings(), None, freed=leaving)
    assert plan.devices == ("CUDA0",)
    assert plan.tensor_split == (9,)
    assert not fits_beside(nano_gguf, Settings(gpu_layers=5), None, leaving)
    pretend(monkeypatch, machine(gpu(8, 7), ram_gib=64))
    assert fits_beside(nano_gguf, Settings(), None, leaving)


def test_ram_decides_without_a_gpu(nano_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [engine_with(CPU=4 * GIB)]
    pretend(monkeypatch, machine(ram_gib=8, available_bytes=GIB // 2))
    assert not fits_beside(nano_gguf, Settings(), None, others)
    pretend(monkeypatch, machine(ram_gib=8, available_bytes=3 * GIB))
    assert fits_beside(nano_gguf, Settings(), None, others)


def test_a_gpu_that_llama_cpp_lacks_is_a_clear_error(
    nano_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And proves that the plan reaches the engine."""
    pretend(monkeypatch, machine(gpu(8, 7.5)))

    async def load() -> None:
        manager = ModelManager(Settings(home=nano_home))
        try:
            async with manager.use("nano"):
                pass
        finally:
            await manager.close()

    with pytest.raises(ModelLoadError, match="no device CUDA0"):
        asyncio.run(load())


@pytest.mark.parametrize(
    ("error", "n_tries"),
    [
        (ModelLoadError("llama.cpp could not load it: unable to allocate CUDA0 buffer"), 3),
        (EngineCrashedError("the engine process died"), 3),
        (ModelLoadError("llama.cpp could not load it: a tensor is missing"), 1),
    ],
)
def test_what_does_not_fit_as_planned_is_planned_smaller(
    nano_home: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, n_tries: int
) -> None:
    pretend(monkeypatch, machine(gpu(8, 7.5)))
    plans: list[Plan] = []

    async def refuse(_entry: Any, _path: Any, _info: Any, plan: Plan, _settings: Any) -> None:
        plans.append(plan)
        raise error

    monkeypatch.setattr(manager_module, "load_model", refuse)

    async def load() -> None:
        async with ModelManager(Settings(home=nano_home, vram="1536MiB")).use("nano"):
            pass

    with pytest.raises(type(error)):
        asyncio.run(load())
    assert len(plans) == n_tries
    totals = [sum(memory.total for memory in plan.placement.gpus) for plan in plans]
    assert totals == sorted(totals, reverse=True)
    if n_tries > 1:
        assert totals[1] < totals[0]
        assert not plans[-1].uses_gpu  # the CPU comes last


def test_context_that_fits_nowhere_is_refused(
    nano_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, machine(ram_gib=2, available_bytes=round(1.15 * GIB)))
    assert plan_load(nano_gguf, Settings(), None).shape.n_ctx >= 4096
    with pytest.raises(DoesNotFitError, match="131072 tokens"):
        plan_load(nano_gguf, Settings(), 131_072)
    assert DoesNotFitError.http_status == 507
    assert msgspec.json.encode(plan_load(nano_gguf, Settings(), None))
