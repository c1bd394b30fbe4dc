"""NVIDIA GPUs by NVML. Facts that a driver or card does not report are None, never guessed."""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import psutil
import pynvml

T = TypeVar("T")

BUSY_PERCENT = 25  # of a GPU or a processor, from which figures are too low. A desktop takes less.
_WITHOUT_MEMORY = re.compile(r"\b(GB10|Thor|Orin|Xavier)\b")  # DGX Spark, Jetson


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, at this moment.

    Attributes:
        index: NVML's, which is CUDA's if CUDA_DEVICE_ORDER=PCI_BUS_ID; of a MIG device, its card's.
        device: llama.cpp's name by Vulkan, `Vulkan1`; those of CUDA count the visible ones.
        pcie_generation: The highest of card and slot; idle links fall back to 1.
        pcie_width: Lanes, likewise.
        bandwidth_bytes_s: Of its memory, from clock and bus width.
        busy_percent: Of the last second, in which any of them did so.
        is_wddm: Windows' display driver silently pages to RAM, so a plan keeps a larger margin.
        shares_ram: It uses the system's RAM, as GB10 and Jetson.
    """

    index: int
    device: str = ""
    name: str
    uuid: str = ""
    total_bytes: int
    free_bytes: int
    compute_capability: tuple[int, int] | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    bandwidth_bytes_s: float | None = None
    n_cores: int | None = None
    clock_hz: float | None = None
    n_processes: int | None = None
    busy_percent: int | None = None
    is_wddm: bool | None = None
    shares_ram: bool = False

    @property
    def is_busy(self) -> bool:
        return (self.busy_percent or 0) >= BUSY_PERCENT

    @property
    def is_mig(self) -> bool:
        return self.uuid.startswith("MIG-")


class Driver(msgspec.Struct, frozen=True):
    """The driver's version (`570.86`), its newest CUDA (12, 8), and `n_silent` GPUs left out."""

    version: str
    cuda: tuple[int, int] | None
    n_silent: int = 0


def read_gpus() -> tuple[Driver | None, list[Gpu]]:
    """Ask the driver, if there is one; GPUs that do not answer are left out."""
    with _nvml() as is_there:
        if not is_there:
            return None, []
        gpus: list[Gpu] = []
        n_silent = 0
        for index in range(_known(pynvml.nvmlDeviceGetCount) or 0):
            handle = _known(pynvml.nvmlDeviceGetHandleByIndex, index)
            parts = [] if handle is None else _mig_handles(handle)
            found = [_gpu(index, each) for each in parts or [handle]]
            gpus += [gpu for gpu in found if gpu]
            n_silent += found.count(None)
        version = _text(_known(pynvml.nvmlSystemGetDriverVersion))
        cuda = _known(pynvml.nvmlSystemGetCudaDriverVersion)
        newest = None if cuda is None else (cuda // 1000, cuda % 1000 // 10)
        return Driver(version, newest, n_silent), gpus


def visible(gpus: list[Gpu], wanted: str | None) -> list[Gpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; None leaves all.

    Source: "CUDA Environment Variables", CUDA programming guide: an unknown entry ends the list.
    CUDA uses one MIG device at most, and only without a whole GPU before it ("MIG User Guide").
    """
    if wanted is None:
        return [gpu for gpu in gpus if not gpu.is_mig] or gpus[:1]
    found: list[Gpu] = []
    for entry in wanted.split(","):
        name = entry.strip()
        matches = [
            gpu
            for gpu in gpus
            if (name.isdigit() and gpu.index == int(name))
            or (name.startswith(("GPU-", "MIG-")) and gpu.uuid.startswith(name))
        ]
        if name.isdigit() and matches and matches[0].is_mig:
            matches = matches[:1]  # of a card's parts CUDA takes the first
        if len(matches) != 1 or matches[0] in found or (found and matches[0].is_mig):
            break
        found += matches
        if matches[0].is_mig:
            break
    return found


@contextlib.contextmanager
def _nvml() -> Iterator[bool]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver, or no library of it
        yield False
        return
    try:
        yield True
    finally:
        pynvml.nvmlShutdown()


def _mig_handles(handle: Any) -> list[Any]:
    current, _ = _known(pynvml.nvmlDeviceGetMigMode, handle) or (pynvml.NVML_DEVICE_MIG_DISABLE, 0)
    if current != pynvml.NVML_DEVICE_MIG_ENABLE:
        return []
    n = _known(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
    found = [_known(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, i) for i in range(n)]
    return [each for each in found if each is not None]


def _memory(handle: Any, name: str) -> tuple[int, int, bool] | None:
    """Return a GPU's bytes, its free bytes, and whether they are the system's RAM.

    A driver says "not supported" of RAM, or 0, or all RAM without the page cache.
    """
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        is_own = memory.total > 0 and not _WITHOUT_MEMORY.search(name)
    except pynvml.NVMLError_NotSupported:
        is_own = False
    except pynvml.NVMLError:
        return None
    if is_own:
        return int(memory.total), int(memory.free), False
    ram = psutil.virtual_memory()
    return ram.total, ram.available, True


def _gpu(index: int, handle: Any) -> Gpu | None:
    if handle is None:
        return None
    name = _text(_known(pynvml.nvmlDeviceGetName, handle))
    if (memory := _memory(handle, name)) is None:
        return None
    total_bytes, free_bytes, shares_ram = memory
    use = _known(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return Gpu(
        index=index,
        name=name,
        uuid=_text(_known(pynvml.nvmlDeviceGetUUID, handle)),
        total_bytes=total_bytes,
        free_bytes=free_bytes,
        compute_capability=_known(pynvml.nvmlDeviceGetCudaComputeCapability, handle),
        pcie_generation=_known(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        pcie_width=_known(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        bandwidth_bytes_s=_bandwidth_bytes_s(handle),
        n_cores=_known(pynvml.nvmlDeviceGetNumGpuCores, handle),
        clock_hz=_clock_hz(handle, pynvml.NVML_CLOCK_SM),
        n_processes=_n_processes(handle),
        busy_percent=None if use is None else use.gpu,
        is_wddm=_is_wddm(handle),
        shares_ram=shares_ram,
    )


def _known(read: Callable[..., T], *arguments: Any) -> T | None:
    try:
        return read(*arguments)
    except (pynvml.NVMLError, AttributeError):  # the latter: a library older than the binding
        return None


def _text(value: str | bytes | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


def _clock_hz(handle: Any, kind: int) -> float | None:
    mhz = _known(pynvml.nvmlDeviceGetMaxClockInfo, handle, kind)
    return mhz * 1e6 if mhz else None


def _bandwidth_bytes_s(handle: Any) -> float | None:
    """Count two transfers a clock, as NVML does (RTX 4090: 10,501 MHz, 384 bits, 1 TB/s)."""
    clock_hz = _clock_hz(handle, pynvml.NVML_CLOCK_MEM)
    n_bits = _known(pynvml.nvmlDeviceGetMemoryBusWidth, handle)
    return clock_hz * 2 * n_bits / 8 if clock_hz and n_bits else None


def _n_processes(handle: Any) -> int | None:
    lists = [
        _known(pynvml.nvmlDeviceGetComputeRunningProcesses, handle),
        _known(pynvml.nvmlDeviceGetGraphicsRunningProcesses, handle),
    ]
    known = [each for each in lists if each is not None]
    return len({p.pid for each in known for p in each}) if known else None


def _is_wddm(handle: Any) -> bool | None:
    """Return whether the driver's model is WDDM; on Linux, without models, the query fails."""
    try:
        model = pynvml.nvmlDeviceGetCurrentDriverModel(handle)
    except pynvml.NVMLError_NotSupported:
        return False
    except (pynvml.NVMLError, AttributeError):
        return None
    return bool(model == pynvml.NVML_DRIVER_WDDM)


class Meters:
    """Energy counters of GPUs, in llama.cpp's order; they hold the driver open until `close`.

    Reading takes milliseconds, and may wake a sleeping GPU. Cards without a counter and parts of a
    card (MIG) are left out. Thread: one at a time.
    """

    def __init__(self, gpus: Iterable[Gpu]) -> None:
        self._names: dict[str, str] = {}  # as llama.cpp has them: `gpu3` may be its CUDA0
        self._handles: dict[str, Any] = {}
        self._is_open = False
        for n, gpu in enumerate(gpus):
            if gpu.is_mig:
                continue
            name = self._names[f"CUDA{n}"] = f"gpu{gpu.index}"
            with suppress(pynvml.NVMLError, AttributeError):  # a library older than the binding
                if not self._is_open:
                    pynvml.nvmlInit()
                    self._is_open = True
                handle = pynvml.nvmlDeviceGetHandleByIndex(gpu.index)
                pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
                self._handles[name] = handle

    def of(self, llama_names: Iterable[str]) -> frozenset[str]:
        """Return the GPUs with counters, by llama.cpp's names (`CUDA0`)."""
        return frozenset(self._names.get(name, "") for name in llama_names) & self._handles.keys()

    def joules(self) -> dict[str, float]:
        return self._read(lambda gpu: pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3)

    def watts(self, llama_names: Iterable[str]) -> dict[str, float]:
        """Return the power of these GPUs now, a second's average since Ampere."""
        found = self._read(lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1e3)
        return {name: found[name] for name in self.of(llama_names) & found.keys()}

    def close(self) -> None:
        self._handles = {}
        if self._is_open:
            self._is_open = False
            pynvml.nvmlShutdown()

    def _read(self, ask: Callable[[Any], float]) -> dict[str, float]:
        found = {}
        for name, handle in self._handles.items():
            with suppress(pynvml.NVMLError):
                found[name] = ask(handle)
        return found
