"""Counters of energy, as NVML and the kernel answer."""

import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gptoss_local.machine import energy
from gptoss_local.machine.energy import Meters
from gptoss_local.machine.nvidia import Gpu
from tests.machine.test_hardware import fake_driver, write

CARD = Gpu(index=0, name="NVIDIA H100", uuid="GPU-1", total_bytes=1, free_bytes=1)
PART = Gpu(index=0, name="NVIDIA H100", uuid="MIG-1", total_bytes=1, free_bytes=1)
NONE = Path("/nonexistent")


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


def seconds(monkeypatch: pytest.MonkeyPatch, *times_s: float) -> None:
    left = iter(times_s)
    monkeypatch.setattr(energy.time, "monotonic", lambda: next(left))


def test_a_card_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(monkeypatch)
    count(monkeypatch, 5_000_000, 5_000_250, 5_002_000)
    meters = Meters([CARD], NONE)
    assert meters.devices == {"gpu0": "NVIDIA H100, counted by NVML"}
    assert not meters.needs_samples
    assert [meters.read(), meters.read()] == [{"gpu0": 0.25}, {"gpu0": 2.0}]
    answer(monkeypatch, "nvmlDeviceGetPowerUsage", 70_500)
    assert meters.watts() == {"gpu0": 70.5}


def test_a_counter_that_begins_again_with_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was used meanwhile is not known; what follows is."""
    fake_driver(monkeypatch)
    count(monkeypatch, 9_000_000, 9_001_000, 500, 1_500)
    meters = Meters([CARD], NONE)
    assert [meters.read()["gpu0"] for _ in range(3)] == [1.0, 1.0, 2.0]


def test_a_card_that_does_not_answer_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(monkeypatch)
    count(monkeypatch, 1_000, pynvml.NVMLError_Unknown(), 3_000)
    meters = Meters([CARD], NONE)
    assert [meters.read(), meters.read()] == [{}, {"gpu0": 2.0}]


def test_a_card_that_knows_its_power_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Volta. Readings nearby are joined by lines; after a pause the lower one counts."""
    fake_driver(monkeypatch)
    answer(monkeypatch, "nvmlDeviceGetPowerUsage", 50_000, 150_000, 150_000, 50_000, 250_000)
    seconds(monkeypatch, 10.0, 11.0, 13.0, 113.0, 133.0)
    meters = Meters([CARD], NONE)
    assert meters.needs_samples
    assert meters.devices == {"gpu0": "NVIDIA H100, added up from NVML's power"}
    assert [meters.read()["gpu0"] for _ in range(4)] == [100, 400, 400 + 5000, 5400 + 1000]


@pytest.mark.parametrize(
    ("gpu", "why"), [(CARD, "neither energy nor power"), (PART, "MIG"), (None, "")]
)
def test_what_is_not_counted(monkeypatch: pytest.MonkeyPatch, gpu: Gpu | None, why: str) -> None:
    """Jetson's driver, a part of a card, no card; of the processor, no RAPL."""
    fake_driver(monkeypatch)  # which supports neither call
    meters = Meters([gpu] if gpu else [], NONE)
    assert (meters.devices, meters.read(), meters.watts()) == ({}, {}, {})
    assert why in meters.missing.get("gpu0", "")
    assert "RAPL" in meters.missing["cpu"] or sys.platform != "linux"
    assert len(meters.missing) == (2 if gpu else 1)
    meters.close()


def test_the_driver_is_held_as_long_as_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(monkeypatch)
    count(monkeypatch, *range(9))
    calls: list[str] = []
    for name in ("nvmlInit", "nvmlShutdown"):
        monkeypatch.setattr(pynvml, name, lambda name=name: calls.append(name))
    Meters([PART], NONE).close()
    Meters([], NONE).close()
    assert calls == []
    meters = Meters([CARD, CARD], NONE)
    meters.close()
    meters.close()
    assert calls == ["nvmlInit", "nvmlShutdown"]
    assert meters.read() == {}


def zone(root: Path, place: str, name: str, microjoules: int = 0, wrap: int = 10_000_000) -> Path:
    files = {"name": name, "energy_uj": str(microjoules), "max_energy_range_uj": str(wrap)}
    return write(root / place, {key: f"{text}\n" for key, text in files.items()}) / "energy_uj"


def test_processors(tmp_path: Path) -> None:
    """A package and its DRAM are counted, not the cores, nor anything twice; it may wrap."""
    package = zone(tmp_path, "intel-rapl:0", "package-0", 9_000_000)
    dram = zone(tmp_path, "intel-rapl:0/intel-rapl:0:1", "dram")
    zone(tmp_path, "intel-rapl:0/intel-rapl:0:0", "core")
    zone(tmp_path, "intel-rapl:0:0", "core")  # the kernel lists it here, too
    zone(tmp_path, "intel-rapl:1", "package-1")
    zone(tmp_path, "intel-rapl:2", "psys")
    zone(tmp_path, "intel-rapl-mmio:0", "package-0")
    meters = Meters([], tmp_path)
    assert list(meters.devices) == ["cpu0", "ram0", "cpu1"]
    assert meters.devices["cpu0"] == "package-0, counted by RAPL"
    assert meters.missing == {}
    package.write_text("500000\n")  # from 9 J on to 10 J, and half a joule more
    dram.write_text("2000000\n")
    assert meters.read() == {"cpu0": 1.5, "ram0": 2.0, "cpu1": 0.0}
    package.write_text("1500000\n")
    dram.unlink()
    assert meters.read() == {"cpu0": 2.5, "cpu1": 0.0}


def test_only_root_may_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Linux has it since 5.10."""
    energy_uj = zone(tmp_path, "intel-rapl:0", "package-0")
    read_text = Path.read_text

    def refuse(self: Path, *arguments: Any) -> str:
        if self == energy_uj:
            raise PermissionError(13, "Permission denied")
        return read_text(self, *arguments)

    monkeypatch.setattr(Path, "read_text", refuse)
    meters = Meters([], tmp_path)
    assert meters.devices == {}
    assert meters.missing == {"cpu": "only root may read the processor's counter (RAPL)"}


def test_the_devices_of_a_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """llama.cpp counts usable GPUs, NVML all of them."""
    fake_driver(monkeypatch)
    count(monkeypatch, 0, 0)
    zone(tmp_path, "intel-rapl:0", "package-0")
    second = Gpu(index=3, name="NVIDIA L4", total_bytes=1, free_bytes=1)
    meters = Meters([second, CARD], tmp_path)
    assert meters.of(["CUDA0"]) == {"gpu3", "cpu0"}
    assert meters.of(["CUDA0", "CUDA1"]) == {"gpu3", "gpu0", "cpu0"}
    assert meters.of([]) == {"cpu0"}
