"""How energy is shared among answers, with NVML's counter in the test's hand."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from gptoss_local.api.models import ModelEnergy
from gptoss_local.machine.plan.planner import make_plan
from gptoss_local.runner import energy as module
from gptoss_local.runner.energy import Energy
from gptoss_local.runner.loading import LoadedModel
from tests.machine.test_energy import CARD
from tests.machine.test_hardware import fake_driver
from tests.plan.machines import SMALL, gpu, machine

pytestmark = pytest.mark.quick


class Card:
    """NVML's current figures for it."""

    def __init__(self) -> None:
        self.joules, self.n_reads, self.calls = 1000.0, 0, list[str]()

    def count(self, _handle: object) -> int:
        self.n_reads += 1
        return round(self.joules * 1e3)

    async def spend(self, joules: float) -> None:
        """Wait until the counter has been read before and after."""
        for more in (0.0, joules):
            self.joules += more
            wanted = self.n_reads + 2  # a reading may be under way
            while self.n_reads < wanted:
                await asyncio.sleep(0.001)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    card = Card()
    fake_driver(monkeypatch)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", card.count)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerUsage", lambda _: 30_000)
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: card.calls.append("init"))
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: card.calls.append("shutdown"))
    monkeypatch.setattr(module, "read_cuda_gpus", lambda: [CARD])
    monkeypatch.setattr(module, "_EVERY_S", 0.001)
    return card


def model(name: str = "20b", *, on_gpu: bool = True) -> LoadedModel:
    """A model as it is planned; nothing here asks its engine."""
    plan = make_plan(SMALL, machine(gpu(16)) if on_gpu else machine())
    nothing: Any = None
    entry: Any = SimpleNamespace(name=name)
    return LoadedModel(entry, nothing, plan, nothing, nothing, 300, 1)


async def test_answers_share_what_the_card_spends(card: Card) -> None:
    energy, of = Energy(), model()
    with energy.answering("20b") as first, energy.answering("other") as second:
        energy.begin(first, of)
        await card.spend(40)
        assert first.joules == {"gpu0": 40}
        energy.begin(second, of)
        await card.spend(20)
        assert (first.joules, second.joules) == ({"gpu0": 50}, {"gpu0": 10})
        first.add_tokens(25)
        energy.end(first)
        await card.spend(7)
        assert (first.joules, second.joules) == ({"gpu0": 50}, {"gpu0": 17})
    card.joules += 500  # idle
    assert energy.answers == {("20b", "gpu0"): 50, ("other", "gpu0"): 17}
    assert await energy.of(of) == ModelEnergy(joules_per_token=2, watts=30)
    assert await energy.of(model("unasked")) == ModelEnergy(watts=30)
    with energy.answering("20b") as again:
        energy.begin(again, of)
        await card.spend(1)
        assert again.joules == {"gpu0": 1}
    await energy.rest()
    assert card.calls == ["init", "shutdown"]


async def test_without_a_gpu_no_driver_is_asked(card: Card) -> None:
    energy, of = Energy(), model(on_gpu=False)
    with energy.answering("20b") as part:
        energy.begin(part, of)
        assert part.joules == {}
    assert await energy.of(of) is None
    await energy.rest()
    assert card.calls == []
