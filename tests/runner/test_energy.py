"""How energy is shared among answers, with NVML's counter in the test's hand."""

import asyncio
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from gptoss_local.api.models import ModelEnergy
from gptoss_local.harmony import Done, Started
from gptoss_local.machine.nvidia import Meters
from gptoss_local.machine.plan.planner import make_plan
from gptoss_local.runner import energy as module
from gptoss_local.runner.energy import AnswerEnergy, Energy
from gptoss_local.runner.loading import LoadedModel
from gptoss_local.types import Usage
from tests.machine.test_energy import CARD
from tests.machine.test_hardware import fake_driver
from tests.plan.machines import SMALL, gpu, machine

pytestmark = pytest.mark.quick

DONE = Done("stop", Usage(1, 1, 1, 1), [])


@dataclass
class Card:
    """NVML's current figures for it."""

    joules: float = 1000.0
    calls: list[str] = field(default_factory=list)

    def count(self, _handle: object) -> int:
        return round(self.joules * 1e3)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    card = Card()
    fake_driver(monkeypatch)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", card.count)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerUsage", lambda _: 30_000)
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: card.calls.append("init"))
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: card.calls.append("shutdown"))
    monkeypatch.setattr(module, "_SHORTEST_S", 0.0)
    return card


def model(name: str = "20b", *, on_gpu: bool = True) -> LoadedModel:
    """A model as it is planned; nothing here asks its engine."""
    plan = make_plan(SMALL, machine(gpu(16)) if on_gpu else machine())
    nothing: Any = None
    entry: Any = SimpleNamespace(name=name)
    return LoadedModel(entry, nothing, plan, nothing, nothing, 300, 1)


def make_energy() -> Energy:
    return Energy(lambda: Meters([CARD]))


async def begin(part: AnswerEnergy, of: LoadedModel) -> None:
    await part.note(Started(1), of)
    assert part._beginning is not None
    await asyncio.shield(part._beginning)


async def joules(part: AnswerEnergy, of: LoadedModel) -> dict[str, float]:
    done = await part.note(DONE, of)
    assert isinstance(done, Done)
    return done.joules


async def test_several_share_by_their_tokens(card: Card) -> None:
    """All that is used while they run, no more and no less, has its owner."""
    energy, of = make_energy(), model()
    with (
        energy.answering("20b") as first,
        energy.answering("other") as second,
        energy.answering("third") as third,
    ):
        await begin(first, of)
        card.joules += 10  # the first alone: its prompt
        await begin(second, of)
        card.joules += 20  # no token: both prompts
        await begin(third, of)
        card.joules += 40
        first.add(30)
        second.add(10)
        assert await joules(third, of) == {"gpu0": 0.0}
        card.joules += 8  # tokens of before count no more
        first.add(1)
        second.add(3)
        assert await joules(first, of) == {"gpu0": 10 + 10 + 30 + 2}
        card.joules += 5  # the second alone
        assert await joules(second, of) == {"gpu0": 10 + 10 + 6 + 5}
    assert sum(energy.answers.values()) == 83
    await energy.rest()


async def test_an_answer_that_is_left_has_its_part(card: Card) -> None:
    energy, of = make_energy(), model()
    with energy.answering("20b") as part:
        await begin(part, of)
        card.joules += 12
        part.add(3)
    while not energy.answers:
        await asyncio.sleep(0)
    card.joules += 100
    with energy.answering("20b") as part:
        await begin(part, of)
    assert energy.answers == {("20b", "gpu0"): 12.0}
    await energy.rest()


async def test_a_model_on_the_cpu_has_no_part_of_a_card(card: Card) -> None:
    energy, of = make_energy(), model(on_gpu=False)
    with energy.answering("20b") as part:
        await part.note(Started(1), of)
        card.joules += 12
        assert await joules(part, of) == {}
    assert await energy.of(of) is None
    assert card.calls == []  # it may sleep
    await energy.rest()


async def test_the_driver_is_held_while_a_model_is_in_memory(card: Card) -> None:
    """What is used while no answer runs has no owner."""
    energy, of = make_energy(), model()
    for _ in range(2):
        for _ in range(2):
            card.joules += 500
            with energy.answering("20b") as part:
                await begin(part, of)
                card.joules += 40
                part.add(80)
                assert await joules(part, of) == {"gpu0": 40.0}
                card.joules += 7
        assert await energy.of(of) == ModelEnergy(joules_per_token=0.5, watts=30.0)
        assert await energy.of(model("other")) == ModelEnergy(watts=30.0)
        assert card.calls == ["init"]
        await energy.rest()
        await energy.rest()
        assert card.calls == ["init", "shutdown"]
        card.calls.clear()
    assert energy.answers == {("20b", "gpu0"): 160.0}


async def test_a_driver_that_hangs_holds_up_no_answer(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.05)
    energy, of, goes_on = make_energy(), model(), threading.Event()
    with energy.answering("20b") as part:
        await begin(part, of)

        def hang(_handle: object) -> int:
            goes_on.wait(30)
            return 0

        monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", hang)
        assert await asyncio.wait_for(joules(part, of), 10) == {}
    goes_on.set()
    await energy.rest()
