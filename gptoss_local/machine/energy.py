"""Reads the energy that devices have used: NVIDIA's GPUs by NVML, processors by Linux' RAPL.

All of it counts whatever runs there: a GPU's counter covers the whole board, other programs too.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pynvml

from gptoss_local.machine.cgroup import read
from gptoss_local.machine.nvidia import Gpu

RAPL = Path("/sys/class/powercap")
_PAUSE_S = 5.0


class Meters:
    """The counters of this machine's devices; they hold the driver open until `close`.

    Reading costs time, and may wake a GPU that sleeps: read when something begins and ends.
    Thread: one at a time.

    Args:
        gpus: Those that models use, in llama.cpp's order.
        rapl: Where Linux has the processor's counters.

    Attributes:
        gpu_names: `gpu0` and so on by NVML's index, in the order of `gpus`.
        devices: What each device's figures come from, by its name: `gpu0`; `cpu0` is a processor,
            `ram0` the memory that it counts apart.
        missing: Why others have none.
        needs_samples: A GPU counts no energy, and its power is added up between two readings.
    """

    def __init__(self, gpus: Iterable[Gpu], rapl: Path = RAPL) -> None:
        self.gpu_names: list[str] = []
        self.devices: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        self.needs_samples = False
        self._joules: dict[str, Callable[[], float]] = {}
        self._handles: dict[str, Any] = {}
        self._is_open = False
        for gpu in gpus:
            self.gpu_names.append(f"gpu{gpu.index}")
            self._add_gpu(f"gpu{gpu.index}", gpu)
        self._add_rapl(rapl)

    def read(self) -> dict[str, float]:
        """Return the joules of each device since these meters were opened.

        A device that does not answer now is left out.
        """
        found = {}
        for name, joules in self._joules.items():
            try:
                found[name] = joules()
            except (pynvml.NVMLError, OSError, ValueError):
                continue
        return found

    def of(self, llama_names: Iterable[str]) -> frozenset[str]:
        """Return the devices that compute a model: these GPUs, and all other devices.

        Args:
            llama_names: As llama.cpp has them: `CUDA0` is the first of the GPUs.
        """
        used = [self.gpu_names[int(name.removeprefix("CUDA"))] for name in llama_names]
        others = self.devices.keys() - set(self.gpu_names)
        return frozenset(others.union(used))

    def watts(self) -> dict[str, float]:
        """Return the power of each GPU now; of Ampere and newer the driver averages a second."""
        found = {}
        for name, handle in self._handles.items():
            try:
                found[name] = _watts(handle)
            except pynvml.NVMLError:
                continue
        return found

    def close(self) -> None:
        """Let the driver go."""
        self._joules, self._handles = {}, {}
        if self._is_open:
            self._is_open = False
            pynvml.nvmlShutdown()

    def _add_gpu(self, name: str, gpu: Gpu) -> None:
        if gpu.is_mig:
            self.missing[name] = "a part of a card (MIG) has no counter of its own"
            return
        try:
            if not self._is_open:
                pynvml.nvmlInit()
                self._is_open = True
            handle = pynvml.nvmlDeviceGetHandleByIndex(gpu.index)
            self._joules[name], is_counter = _gpu_meter(handle)
        except (pynvml.NVMLError, AttributeError):  # the latter: a library older than the binding
            self.missing[name] = "its driver reports neither energy nor power"
            return
        self.needs_samples |= not is_counter
        how = "counted by NVML" if is_counter else "added up from NVML's power"
        self.devices[name] = f"{gpu.name}, {how}"
        self._handles[name] = handle

    def _add_rapl(self, rapl: Path) -> None:
        for name, zone in _rapl_zones(rapl):
            try:
                self._joules[name] = _rapl_meter(zone)
            except PermissionError:
                self.missing["cpu"] = "only root may read the processor's counter (RAPL)"
            except (OSError, ValueError):
                continue
            else:
                self.devices[name] = f"{read(zone / 'name')}, counted by RAPL"
        if not self.missing.get("cpu") and not any(n.startswith("cpu") for n in self.devices):
            shows = "the kernel shows no counter of it (RAPL)"
            self.missing["cpu"] = shows if sys.platform == "linux" else "only Linux counts it"


def _gpu_meter(handle: Any) -> tuple[Callable[[], float], bool]:
    """Return what reads a GPU's joules from now on, and whether the driver counts them.

    Raises:
        NVMLError: it knows neither energy (before Volta) nor power (Jetson).
    """
    try:
        return _counted(lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3), True
    except pynvml.NVMLError:
        return _added_up(lambda: _watts(handle)), False


def _watts(handle: Any) -> float:
    return float(pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3)


def _counted(read_j: Callable[[], float], wrap_j: float | None = None) -> Callable[[], float]:
    """Return what reads how far a counter has come since now.

    Args:
        read_j: Returns the counter.
        wrap_j: Where it begins again at 0. One that begins again for another reason, as NVML's when
            the driver is loaded again, tells nothing of that time: it counts as 0.
    """
    last_j, sum_j = read_j(), 0.0

    def joules() -> float:
        nonlocal last_j, sum_j
        now_j = read_j()
        step_j = now_j - last_j
        sum_j += max(0.0, step_j if step_j >= 0 else step_j + (wrap_j or 0.0))
        last_j = now_j
        return sum_j

    return joules


def _added_up(read_w: Callable[[], float]) -> Callable[[], float]:
    """Return what adds up power since now, in straight lines between two readings.

    After a longer pause the lower of the two counts: the higher one was not that of all the pause.
    """
    last_s, last_w, sum_j = time.monotonic(), read_w(), 0.0

    def joules() -> float:
        nonlocal last_s, last_w, sum_j
        now_s, now_w = time.monotonic(), read_w()
        is_pause = now_s - last_s > _PAUSE_S
        watts = min(now_w, last_w) if is_pause else (now_w + last_w) / 2
        sum_j += watts * (now_s - last_s)
        last_s, last_w = now_s, now_w
        return sum_j

    return joules


def _rapl_zones(rapl: Path) -> Iterator[tuple[str, Path]]:
    """Yield the counters that do not contain each other: of packages, and of their DRAM.

    Source: Documentation/power/powercap/powercap.rst of Linux. `intel-rapl` is also AMD's;
    `intel-rapl-mmio` counts the same package again, `psys` the whole computer.
    """
    for package in sorted(rapl.glob("intel-rapl:*")):
        kind, _, number = (read(package / "name") or "").partition("-")
        if kind != "package":
            continue
        yield f"cpu{number}", package
        for part in package.glob("intel-rapl:*"):
            if read(part / "name") == "dram":
                yield f"ram{number}", part


def _rapl_meter(zone: Path) -> Callable[[], float]:
    """Return what reads a zone's joules from now on.

    A counter wraps after 262 kJ on most processors, an hour at 70 W. If it wraps twice between two
    readings, once is missed.
    """
    file = zone / "energy_uj"
    wrap_j = int((zone / "max_energy_range_uj").read_text()) / 1e6
    return _counted(lambda: int(file.read_text()) / 1e6, wrap_j)
