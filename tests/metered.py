"""`gptoss` on a machine whose devices count their energy, at a constant power each.

A card of 100 W, which is said to compute whatever is computed, and a processor of 40 W.
"""

import os
import tempfile
import threading
import time
from pathlib import Path

import pynvml

from gptoss_local.__main__ import main
from gptoss_local.machine import energy as meters
from gptoss_local.machine.nvidia import Gpu
from gptoss_local.runner import benchmark, benchmark_energy, energy

GPU_W, CPU_W = 100, 40

_CARD = Gpu(index=0, name="Test card", total_bytes=1, free_bytes=1)


def _count(file: Path) -> None:
    """Write as the kernel does: no one reads half a number."""
    while True:
        partial = file.with_name("partial")
        partial.write_text(str(round(time.monotonic() * CPU_W * 1e6)))
        os.replace(partial, file)
        time.sleep(0.005)


def _begin() -> None:
    zone = Path(tempfile.mkdtemp()) / "intel-rapl:0"
    zone.mkdir()
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text("262143328850\n")
    (zone / "energy_uj").write_text("0")
    threading.Thread(target=_count, args=(zone / "energy_uj",), daemon=True).start()
    nothing, by_nvml = (lambda *_: None), (lambda _: round(time.monotonic() * GPU_W * 1e3))
    for name in ("nvmlInit", "nvmlShutdown", "nvmlDeviceGetHandleByIndex"):
        setattr(pynvml, name, nothing)
    pynvml.nvmlDeviceGetTotalEnergyConsumption = by_nvml
    pynvml.nvmlDeviceGetPowerUsage = lambda _: GPU_W * 1000
    for module in (energy, benchmark):
        module.read_usable_gpus = lambda: (_CARD,)
    meters.Meters.__init__.__defaults__ = (zone.parent,)
    meters.Meters.of = lambda self, _: frozenset(self.devices)
    energy._SETTLE_S = benchmark_energy._SETTLE_S = 0.3
    energy._SHORTEST_S, benchmark_energy._SPAN_S = 0.0, 0.5


if __name__ == "__main__":
    _begin()
    main()
