"""How energy is shared among answers, with NVML's counter in the test's hand."""

import asyncio
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from gptoss_local.chat import Done, Started
from gptoss_local.machine.energy import Meters
from gptoss_local.plan.planner import make_plan
from gptoss_local.runner import energy as module
from gptoss_local.runner.energy import AnswerEnergy, Energy
from gptoss_local.runner.loading import LoadedModel
from gptoss_local.types import Usage
from tests.machine.test_energy import CARD
from tests.machine.test_hardware import fake_driver
from tests.plan.machines import SMALL, gpu, machine

DONE = Done("stop", Usage(1, 1, 1, 1), [])


@dataclass
class Card:
    """What NVML says of it now."""

    joules: float = 1000.0
    watts: float = 30.0
    n_reads: int = 0
    calls: list[str] = field(default_factory=list)

    def count(self, _handle: object) -> int:
        self.n_reads += 1
        return round(self.joules * 1e3)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    card = Card()
    fake_driver(monkeypatch)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", card.count)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerUsage", lambda _: round(card.watts * 1e3))
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: card.calls.append("init"))
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: card.calls.append("shutdown"))
    monkeypatch.setattr(module, "_SHORTEST_S", 0.0)
    monkeypatch.setattr(module, "_SETTLE_S", 0.0)
    return card


def model(name: str = "20b", *, on_gpu: bool = True) -> LoadedModel:
    """A model as it is planned; nothing here asks its engine."""
    plan = make_plan(SMALL, machine(gpu(16)) if on_gpu else machine())
    nothing: Any = None
    entry: Any = SimpleNamespace(name=name)
    return LoadedModel(entry, nothing, plan, nothing, nothing, 300, 1)


async def loaded(energy: Energy) -> Energy:
    async with energy.loading(is_first=True):
        pass
    return energy


def make_energy() -> Energy:
    return Energy(lambda: Meters([CARD], Path("/nonexistent")))


async def begin(part: AnswerEnergy, of: LoadedModel) -> None:
    await part.note(Started(1), of)
    assert part._beginning is not None
    await asyncio.shield(part._beginning)


async def joules(part: AnswerEnergy, of: LoadedModel) -> dict[str, float]:
    done = await part.note(DONE, of)
    assert isinstance(done, Done)
    return done.joules


async def test_an_answer_alone(card: Card) -> None:
    energy, of = await loaded(make_energy()), model()
    card.joules += 500  # idle
    with energy.answering("20b") as part:
        await begin(part, of)
        card.joules += 40
        part.add(80)
        assert await joules(part, of) == {"gpu0": 40.0}
        card.joules += 7
    await energy.look()
    assert energy.spent == {"gpu0": 547.0}
    assert energy.answers == {("20b", "gpu0"): 40.0}
    found = energy.of(of, is_alone=True)
    assert found is not None
    assert (found.joules, found.joules_per_token) == ({"gpu0": 40.0}, 0.5)
    await energy.close()


async def test_several_share_by_their_tokens(card: Card) -> None:
    """All that is used while they run, no more and no less, has its owner."""
    energy, of = await loaded(make_energy()), model()
    with energy.answering("20b") as first, energy.answering("other") as second:
        await begin(first, of)
        card.joules += 10  # the first alone: its prompt
        await begin(second, of)
        card.joules += 20  # no token: both prompts
        await energy.settle()
        card.joules += 40
        first.add(30)
        second.add(10)
        await energy.settle()
        card.joules += 8  # tokens of before count no more
        first.add(1)
        second.add(3)
        assert await joules(first, of) == {"gpu0": 10 + 10 + 30 + 2}
        card.joules += 5  # the second alone
        assert await joules(second, of) == {"gpu0": 10 + 10 + 6 + 5}
    assert energy.spent["gpu0"] == sum(energy.answers.values()) == 83
    await energy.close()


async def test_an_answer_that_is_left_has_its_part(card: Card) -> None:
    energy, of = await loaded(make_energy()), model()
    with energy.answering("20b") as part:
        await begin(part, of)
        card.joules += 12
        part.add(3)
    while part in energy._active:
        await asyncio.sleep(0)
    card.joules += 100
    await energy.look()
    assert energy.answers == {("20b", "gpu0"): 12.0}
    await energy.close()


async def test_a_model_on_the_cpu_has_no_part_of_a_card(card: Card) -> None:
    energy, of = await loaded(make_energy()), model(on_gpu=False)
    with energy.answering("20b") as part:
        await begin(part, of)
        card.joules += 12
        assert await joules(part, of) == {}
    await energy.look()
    assert energy.idle_watts == {"gpu0": 30.0}
    assert energy.of(of, is_alone=True) is None
    await energy.close()


async def test_what_is_too_short_is_not_known(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its counter may not have moved, or by what was used before."""
    monkeypatch.setattr(module, "_SHORTEST_S", 3600.0)
    energy, of = await loaded(make_energy()), model()
    with energy.answering("20b") as part:
        await begin(part, of)
        card.joules += 12
        assert await joules(part, of) == {}
    await energy.close()


async def test_idling_costs_what_the_loaded_model_adds(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    energy, of = await loaded(make_energy()), model()
    card.watts = 51.0
    with energy.answering("20b") as part:
        await begin(part, of)
        card.watts = 300.0
        await energy.look()
        assert energy.idle_watts == {}  # it computes
        await joules(part, of)
        part.end()
    monkeypatch.setattr(module, "_SETTLE_S", 3600.0)
    await energy.look()
    assert energy.idle_watts == {}  # it has just computed
    monkeypatch.setattr(module, "_SETTLE_S", 0.0)
    card.watts = 51.0
    await energy.look()
    found, among = energy.of(of, is_alone=True), energy.of(of, is_alone=False)
    assert found is not None
    assert (found.idle_watts, found.idle_added_watts) == (51.0, 21.0)
    assert among is not None
    assert (among.idle_watts, among.idle_added_watts) == (51.0, None)
    await energy.close()


async def test_a_load_is_not_idle_and_another_model_changes_no_baseline(card: Card) -> None:
    energy = await loaded(make_energy())
    assert energy.watts_before == {"gpu0": 30.0}
    card.watts = 80.0
    async with energy.loading(is_first=False):
        await energy.look()
        assert energy.idle_watts == {}
    assert energy.watts_before == {"gpu0": 30.0}
    assert card.calls == ["init"]
    await energy.rest()
    assert card.calls == ["init", "shutdown"]
    await loaded(energy)
    assert card.calls == ["init", "shutdown", "init"]
    await energy.close()


async def test_nothing_is_read_between(card: Card) -> None:
    """A reading costs time; those that come together share it."""
    energy, of = await loaded(make_energy()), model()
    n_opened = card.n_reads
    with energy.answering("20b") as part:
        await begin(part, of)
        for _ in range(100):
            part.add(1)
            await asyncio.sleep(0.001)
        assert card.n_reads == n_opened + 1
        await asyncio.gather(*(energy.settle() for _ in range(50)))
        assert card.n_reads == n_opened + 2
        await joules(part, of)
    assert card.n_reads == n_opened + 3
    await energy.close()


async def test_a_driver_that_hangs_holds_up_no_answer(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.05)
    energy, of, goes_on = await loaded(make_energy()), model(), threading.Event()
    with energy.answering("20b") as part:
        await begin(part, of)

        def hang(_handle: object) -> int:
            goes_on.wait(30)
            return 0

        monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", hang)
        assert await asyncio.wait_for(joules(part, of), 10) == {}
    goes_on.set()
    await energy.close()


async def test_power_is_sampled_while_answers_run(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a card does not count."""
    refused = pynvml.NVMLError_NotSupported()

    def refuse(_handle: object) -> int:
        raise refused

    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", refuse)
    monkeypatch.setattr(module, "_SAMPLE_S", 0.01)
    n_samples = 0

    def power(_handle: object) -> int:
        nonlocal n_samples
        n_samples += 1
        return 30_000

    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerUsage", power)
    energy, of = await loaded(make_energy()), model()
    with energy.answering("20b") as part:
        await begin(part, of)
        n_begun = n_samples
        while n_samples < n_begun + 3:
            await asyncio.sleep(0.01)
        assert (await joules(part, of))["gpu0"] > 0
    await asyncio.sleep(0.05)  # the last sample may be under way
    n_ended = n_samples
    await asyncio.sleep(0.05)
    assert n_samples == n_ended
    await energy.close()
