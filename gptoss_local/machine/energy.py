"""Reads the energy that NVIDIA's GPUs have used, as their driver counts it from Volta on.

A counter covers the whole board, idle power and other programs included.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pynvml

from gptoss_local.machine.nvidia import Gpu


class Meters:
    """The counters of GPUs; they hold the driver open until `close`.

    Reading costs milliseconds, and may wake a GPU that sleeps. Thread: one at a time.

    Args:
        gpus: Those that models use, in llama.cpp's order. A card without a counter is left out,
            and so is a part of a card (MIG).
    """

    def __init__(self, gpus: Iterable[Gpu]) -> None:
        self._names: dict[str, str] = {}  # as llama.cpp has them: `gpu3` may be its CUDA0
        self._handles: dict[str, Any] = {}
        self._is_open = False
        for n, gpu in enumerate(gpus):
            if not gpu.is_mig:
                self._names[f"CUDA{n}"] = f"gpu{gpu.index}"
                with suppress(pynvml.NVMLError, AttributeError):  # a library older than the binding
                    self._open(f"gpu{gpu.index}", gpu.index)

    def of(self, llama_names: Iterable[str]) -> frozenset[str]:
        """Return the GPUs that count, of those that llama.cpp calls `CUDA0` and so on."""
        return frozenset(self._names.get(name, "") for name in llama_names) & self._handles.keys()

    def joules(self) -> dict[str, float]:
        """Return each GPU's counter, `gpu0` and so on by NVML's index."""
        return self._read(lambda gpu: pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3)

    def watts(self, llama_names: Iterable[str]) -> dict[str, float]:
        """Return the power of these GPUs now; of Ampere and newer the driver averages a second."""
        found = self._read(lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1e3)
        return {name: found[name] for name in self.of(llama_names) & found.keys()}

    def close(self) -> None:
        """Let the driver go."""
        self._handles = {}
        if self._is_open:
            self._is_open = False
            pynvml.nvmlShutdown()

    def _open(self, name: str, index: int) -> None:
        if not self._is_open:
            pynvml.nvmlInit()
            self._is_open = True
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        self._handles[name] = handle

    def _read(self, ask: Callable[[Any], float]) -> dict[str, float]:
        """Return what each GPU answers; one that does not answer now is left out."""
        found = {}
        for name, handle in self._handles.items():
            with suppress(pynvml.NVMLError):
                found[name] = ask(handle)
        return found
