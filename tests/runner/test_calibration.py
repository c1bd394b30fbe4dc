"""The measurement before the first load of a model with experts in RAM, its file, its effect."""

import logging
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import AsyncMock

import msgspec
import pynvml
import pytest

from gptoss_local.base.settings import Settings
from gptoss_local.base.types import ModelParams, OffloadTimes
from gptoss_local.cli import measure
from gptoss_local.engine.protocol import Load, Tuned
from gptoss_local.machine import hardware
from gptoss_local.machine.plan.facts import published_facts
from gptoss_local.machine.plan.measured import Measured, read_measured
from gptoss_local.machine.plan.planner import make_plan
from gptoss_local.machine.plan.result import Plan
from gptoss_local.models.store import find_model
from gptoss_local.runner import measuring, planning
from gptoss_local.runner.loads import LoadProgress
from gptoss_local.runner.manager import ModelManager
from gptoss_local.runner.measuring import calibrate, is_due, judge
from gptoss_local.runner.planning import load_command, measured_file, plan_load
from tests.conftest import free_port
from tests.engine.run import load_of
from tests.machine.test_hardware import fake_driver
from tests.plan.machines import gpu, machine


@pytest.fixture(autouse=True)
def gpu_of_8_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the planner counts on and llama.cpp does not have."""
    monkeypatch.setattr(planning, "read_machine", lambda _: machine(gpu(8, 7.5)))


@pytest.fixture
def plan(nano_gguf: Path) -> Plan:
    return plan_load(nano_gguf, Settings(cpu_moe=2), None)


async def test_what_is_found_is_kept(nano_gguf: Path, plan: Plan, tmp_path: Path) -> None:
    """By a real process, which has no GPU: both ways are the CPU's."""
    load = load_of(nano_gguf)
    progress, path = LoadProgress("nano"), tmp_path / "measured.json"
    assert is_due(plan, Measured())
    known = await calibrate(plan, load, Measured(), path, progress)
    assert known.tuning is not None
    assert known.tuning.offload[0][0] == 1
    assert known.tuning.offload_min_batch is not None
    assert known.tuning.prefill_factor > 0
    assert known.tuning.n_threads_prefill == 2
    assert read_measured(path) == known
    assert not is_due(plan, known)
    status, size = progress.status, nano_gguf.stat().st_size
    assert (status.status, status.completed, status.total) == ("measuring", size, 2 * size)
    assert status.n_tries == 0


async def test_a_model_that_cannot_be_measured_is_loaded_all_the_same(
    nano_gguf: Path, plan: Plan, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entry, known = find_model("nano", Settings()), Measured()
    load = load_command(entry, nano_gguf, plan, Settings(), known)
    path = tmp_path / "measured.json"
    with caplog.at_level(logging.WARNING, "gptoss"):
        found = await calibrate(plan, load, known, path, LoadProgress("nano"))
    assert "could not be measured (llama.cpp has no device CUDA0)" in caplog.text
    assert found == read_measured(path) == Measured(tuning_failed=True)
    assert not is_due(plan, found)  # or every load would take twice as long


def test_only_where_experts_lie_beside_a_gpu(
    nano_gguf: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_due(plan_load(nano_gguf, Settings(), None), Measured())  # all in VRAM
    assert not is_due(plan_load(nano_gguf, Settings(gpu_layers=0), None), Measured())
    monkeypatch.setenv("GGML_OP_OFFLOAD_MIN_BATCH", "16")
    assert not is_due(plan, Measured())


async def test_the_first_load_measures_and_then_loads(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan of a GPU, and processes without one: only the requests of a load count."""
    seen: list[tuple[str, int]] = []
    real = load_command

    def on_cpu(*arguments: object) -> Load:
        load = real(*arguments)  # type: ignore[arg-type]
        seen.append((load.model.load_mode, load.offload_min_batch))
        return msgspec.structs.replace(
            load_of(Path(load.model_path)),
            model=ModelParams(n_gpu_layers=0),
            offload_min_batch=load.offload_min_batch,
        )

    monkeypatch.setattr("gptoss_local.runner.loading.load_command", on_cpu)
    settings = Settings(home=empty_home, cpu_moe=2)
    statuses = []
    for _ in range(2):
        manager = ModelManager(settings)
        try:
            statuses.append([status async for status in manager.load(find_model("nano", settings))])
        finally:
            await manager.close()
    known = read_measured(measured_file(find_model("nano", settings), settings))
    assert known.tuning is not None
    assert len(seen) == 3  # measured, loaded; loaded
    assert seen[1][1] == seen[2][1] == known.tuning.offload_min_batch
    first, second = ([status.status for status in each] for each in statuses)
    assert "measuring" in first
    assert "measuring" not in second
    assert first[-1] == second[-1] == "success"
    completed = [status.completed for status in statuses[0][:-1]]
    assert completed == sorted(completed)
    assert {status.n_tries for status in statuses[0][:-1]} == {0, 1}


def on_gpu_of_others(monkeypatch: pytest.MonkeyPatch, *percents: int) -> None:
    """Let NVML tell so much use at one look after the other, the last for good."""
    left = list(percents)

    def rates(_: object) -> SimpleNamespace:
        return SimpleNamespace(gpu=left.pop(0) if len(left) > 1 else left[0], memory=0)

    fake_driver(monkeypatch)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUtilizationRates", rates)
    monkeypatch.setattr(hardware, "llama_backend", lambda: "CUDA")
    monkeypatch.setattr(measuring, "_LOOK_S", 0)


async def test_a_load_keeps_nothing_while_others_use_the_gpu(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only what is true nevertheless: the memory that was taken."""
    on_gpu_of_others(monkeypatch, 38)
    monkeypatch.setattr(
        "gptoss_local.runner.loading.load_command",
        lambda _entry, path, *_: msgspec.structs.replace(
            load_of(path), model=ModelParams(n_gpu_layers=0)
        ),
    )
    settings = Settings(home=empty_home, cpu_moe=2)
    entry, manager = find_model("nano", settings), ModelManager(settings)
    try:
        with caplog.at_level(logging.WARNING, "gptoss"):
            statuses = [status.status async for status in manager.load(entry)]
    finally:
        await manager.close()
    assert statuses[-1] == "success"
    assert "measuring" not in statuses
    assert "another program uses the GPU (38 %): figures would be too low" in caplog.text
    known = read_measured(measured_file(find_model("nano", settings), settings))
    assert known.outcome is not None
    assert (known.steps, known.tuning, known.tuning_failed) == (None, None, False)


@pytest.mark.parametrize(
    ("percents", "is_kept"), [((0,), True), ((97, 24), True), ((38,), False), ((0, 38), False)]
)
async def test_tune_says_it_and_keeps_nothing(
    empty_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    percents: tuple[int, ...],
    is_kept: bool,
) -> None:
    """Looked at before and after; a program that has just ended still counts for a second."""
    on_gpu_of_others(monkeypatch, *percents)
    settings = Settings(home=empty_home, cpu_moe=2)
    told = Tuned(decode=((8, 25.0),), prefill=((8, 1000.0),), offload=(), step_costs=None)
    monkeypatch.setattr(measuring.EngineClient, "tune", AsyncMock(return_value=told))
    entry = find_model("nano", settings)
    found = await measuring.tune(entry, settings, lambda _: None)
    measure._print_tuning(found)
    file = measured_file(find_model("nano", settings), settings)
    assert file.exists() == is_kept
    last = "Kept in" if is_kept else "Not kept, as another program uses the GPU (38 %): figures"
    assert last in capsys.readouterr().out


def test_bench_says_it(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(home=empty_home, port=free_port())
    for percent, n_told in ((38, 1), (24, 0)):
        on_gpu_of_others(monkeypatch, percent)
        measure._ready("nano", settings)
        assert capsys.readouterr().err.count("another program uses the GPU") == n_told


PUBLISHED = published_facts(36, 128)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("offload", "min_batch", "decode_tok_s"),
    [
        (((1, 0.04, 0.05), (2, 0.09, 0.06), (4, 0.2, 0.07)), 5, 25.0),
        (((1, 0.04, 0.05), (4, 0.1, 0.2), (8, 0.3, 0.2)), 6, 25.0),
        (((1, 0.04, 0.02), (2, 0.09, 0.03), (4, None, 0.05)), 1, 50.0),
    ],
)
def test_answers_are_computed_where_one_token_is_faster(
    offload: OffloadTimes, min_batch: int, decode_tok_s: float
) -> None:
    plan = make_plan(PUBLISHED, machine(gpu(16, 15.5)))
    n_decode, n_prefill = plan.n_threads_decode, plan.n_threads_prefill
    tuned = Tuned(
        decode=((n_decode, 25.0),), prefill=((n_prefill, 1000.0),), offload=offload, step_costs=None
    )
    tuning = judge(PUBLISHED, plan, tuned)
    assert tuning.offload_min_batch == min_batch
    assert tuning.correct(plan.speed).decode_tok_s == pytest.approx(decode_tok_s)
    assert tuning.correct(plan.speed).prefill_tok_s == pytest.approx(1000)
