"""`gptoss` on a machine with a card of 100 W, which is said to compute all answers."""

import time

import pynvml

from gptoss_local.__main__ import main
from gptoss_local.machine.nvidia import Gpu
from gptoss_local.runner import energy

GPU_W = 100

_CARD = Gpu(index=0, name="Test card", total_bytes=1, free_bytes=1)


def _begin() -> None:
    for name in ("nvmlInit", "nvmlShutdown", "nvmlDeviceGetHandleByIndex"):
        setattr(pynvml, name, lambda *_: None)
    counter = "nvmlDeviceGetTotalEnergyConsumption"
    setattr(pynvml, counter, lambda _: round(time.monotonic() * GPU_W * 1e3))
    pynvml.nvmlDeviceGetPowerUsage = lambda _: GPU_W * 1000
    energy.read_cuda_gpus = lambda: (_CARD,)
    energy._gpus_of = lambda _: ("CUDA0",)
    energy._EVERY_S = 0.01


if __name__ == "__main__":
    _begin()
    main()
