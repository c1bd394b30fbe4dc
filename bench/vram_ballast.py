"""Hold memory of the first GPU until stdin ends: a smaller card, or a program in the way.

    python bench/vram_ballast.py --leave GIB            leaves this much free
    python bench/vram_ballast.py --grab GIB --when GIB  takes this much after others took --when GIB

Needs only NVIDIA's driver. Prints one line when it is done.
"""

import argparse
import ctypes
import sys
import time

from gptoss_local.machine.nvidia import read_gpus

GIB = 2**30
_STEP_BYTES = 4 * GIB


def free_bytes() -> int:
    return next((gpu.free_bytes for gpu in read_gpus()[1]), 0)


class Cuda:
    """A context of CUDA's driver that can allocate plain memory."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def allocate(self, n_bytes: int) -> None:
        while n_bytes > 0:
            n = min(n_bytes, _STEP_BYTES)
            pointer = ctypes.c_uint64()
            self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(n))
            n_bytes -= n

    def _call(self, name: str, *arguments: object) -> None:
        if status := self._library[name](*arguments):
            raise SystemExit(f"{name} failed with status {status}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leave", type=float)
    parser.add_argument("--grab", type=float)
    parser.add_argument("--when", type=float, default=0.2)
    arguments = parser.parse_args()
    at_start = free_bytes()
    cuda = Cuda()
    print(f"CUDA itself takes {(at_start - free_bytes()) / 2**20:.0f} MiB", file=sys.stderr)
    if arguments.leave is not None:
        cuda.allocate(round(free_bytes() - arguments.leave * GIB))
    else:
        before = free_bytes()
        print("waits", flush=True)
        while before - free_bytes() < arguments.when * GIB:
            time.sleep(0.02)
        cuda.allocate(round(arguments.grab * GIB))
    print(f"{free_bytes() / GIB:.2f} GiB are free", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
