"""Counters of energy, as NVML answers."""

import pynvml
import pytest

from gptoss_local.machine.nvidia import Gpu, Meters
from tests.machine.test_hardware import fake_driver

pytestmark = pytest.mark.quick

CARD = Gpu(index=0, name="NVIDIA H100", uuid="GPU-1", total_bytes=1, free_bytes=1)
PART = Gpu(index=0, name="NVIDIA H100", uuid="MIG-1", total_bytes=1, free_bytes=1)


def answer(monkeypatch: pytest.MonkeyPatch, call: str, *answers: object) -> None:
    """Let NVML give these answers, one after the other, to a call."""
    left = iter(answers)

    def reply(_handle: object) -> object:
        found = next(left)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(pynvml, call, reply)


def count(monkeypatch: pytest.MonkeyPatch, *millijoules: object) -> None:
    answer(monkeypatch, "nvmlDeviceGetTotalEnergyConsumption", *millijoules)


def test_a_card_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(monkeypatch)
    count(monkeypatch, 0, 5_000_250, 5_002_000)
    meters = Meters([CARD])
    assert [meters.joules(), meters.joules()] == [{"gpu0": 5000.25}, {"gpu0": 5002.0}]
    answer(monkeypatch, "nvmlDeviceGetPowerUsage", 70_500, 70_500)
    assert meters.watts(["CUDA0"]) == {"gpu0": 70.5}
    assert meters.watts([]) == {}


@pytest.mark.parametrize("gpus", [[CARD], [PART], []])
def test_what_is_not_counted(monkeypatch: pytest.MonkeyPatch, gpus: list[Gpu]) -> None:
    """A card before Volta or Jetson's, a part of a card, no card."""
    fake_driver(monkeypatch)  # which supports neither call
    meters = Meters(gpus)
    assert (meters.of(["CUDA0"]), meters.joules(), meters.watts(["CUDA0"])) == (set(), {}, {})
    meters.close()


def test_the_devices_of_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp counts usable GPUs, NVML all of them."""
    fake_driver(monkeypatch)
    count(monkeypatch, 0, 0)
    second = Gpu(index=3, name="NVIDIA L4", total_bytes=1, free_bytes=1)
    meters = Meters([second, CARD])
    assert meters.of(["CUDA0"]) == {"gpu3"}
    assert meters.of(["CUDA0", "CUDA1"]) == {"gpu3", "gpu0"}
    assert meters.of([]) == set()
