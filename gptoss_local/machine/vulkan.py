"""GPUs of any maker, by llama.cpp's Vulkan backend: what it says of them is all that is known."""

import os
import subprocess
import sys
from collections import defaultdict

import msgspec

from gptoss_local.machine.nvidia import Gpu

_PATIENCE_S = 30.0
_CHOSEN = "GGML_VK_VISIBLE_DEVICES"


class Device(msgspec.Struct):
    """One device as ggml lists it; an integrated one has the system's RAM."""

    name: str
    description: str
    free_bytes: int
    total_bytes: int
    shares_ram: bool


def read_gpus() -> list[Gpu]:
    """Ask in a process of its own, as graphics drivers keep memory and threads; half a second."""
    command = [sys.executable, "-m", "gptoss_local.engine.llama", "--devices"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=True)
        devices = msgspec.json.decode(done.stdout, type=list[Device])
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError):
        return []  # `gptoss doctor` says why llama.cpp does not load
    return [
        Gpu(
            index=i,
            name=device.description,
            total_bytes=device.total_bytes,
            free_bytes=device.free_bytes,
            shares_ram=device.shares_ram,
        )
        for i, device in enumerate(devices)
    ]


def of_one_maker(gpus: list[Gpu]) -> list[Gpu]:
    """Return the cards of the maker with most memory, unless the user chose among them.

    The slower of two kinds would keep the faster one waiting in every token.
    """
    if os.environ.get(_CHOSEN):
        return gpus
    makers: dict[str, list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        makers[gpu.name.partition(" ")[0]].append(gpu)
    return max(makers.values(), key=lambda cards: sum(c.total_bytes for c in cards), default=[])
