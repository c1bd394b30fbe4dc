"""Engine processes for measurements: of steps, of offloading, and of memory."""

from pathlib import Path

import msgspec
import psutil
import pytest

from gptoss_local.base.errors import ModelLoadError
from gptoss_local.base.types import StepTimes
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import Load
from tests.engine.run import load_of


@pytest.fixture
def load(bare_gguf: Path) -> Load:
    return load_of(bare_gguf)


async def test_tune(load: Load) -> None:
    fractions: list[float] = []
    before = psutil.Process().children()
    tuned = await EngineClient.tune(load, on_progress=fractions.append)
    assert fractions[-1] == 1
    assert dict(tuned.decode).keys() == dict(tuned.prefill).keys() == {1, 2}
    assert all(rate > 0 for _, rate in (*tuned.decode, *tuned.prefill))
    assert [n for n, _ in tuned.step_costs.seconds][:2] == [1, 2]
    assert tuned.offload == ()  # no GPU works with experts of the host
    assert psutil.Process().children() == before


async def test_known_step_costs_are_not_measured_again(load: Load) -> None:
    told = StepTimes(((1, 123.0), (4, 456.0)), 0.0)
    engine = await EngineClient.start(msgspec.structs.replace(load, step_costs=told))
    assert engine.loaded.step_costs == told
    await engine.close()


async def test_a_graph_beyond_its_budget_is_refused_before_anything_is_read(load: Load) -> None:
    asked = msgspec.structs.replace(load, budget_bytes={"CPU": 2**20})
    with pytest.raises(ModelLoadError, match=r"would allocate .* where 1 MiB were planned"):
        await EngineClient.start(asked, on_progress=pytest.fail)
    enough = msgspec.structs.replace(load, budget_bytes={"CPU": 400 * 2**20})
    await (await EngineClient.start(enough)).close()


async def test_offloading_alone_is_measured_for_a_first_load(load: Load) -> None:
    tuned = await EngineClient.tune(load, what="offload")
    sizes = [n for n, _, _ in tuned.offload]
    assert sizes[0] == 1
    assert sizes[-1] == load.context.n_batch
    assert all(gpu_s > 0 for _, _, gpu_s in tuned.offload)
    _, token_s, _ = tuned.offload[0]
    assert tuned.decode == ((1, 1 / token_s),)
    assert tuned.prefill == ((2, load.context.n_batch / tuned.offload[-1][2]),)
    assert tuned.step_costs is None
