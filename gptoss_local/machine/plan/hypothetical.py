"""Machines that are not this one, for a look before one buys or downloads."""

from collections.abc import Sequence

import msgspec

from gptoss_local.machine.hardware import Machine, pinnable_bytes
from gptoss_local.machine.nvidia import Gpu
from gptoss_local.machine.plan.speed import RAM_BYTES_S

GIB = 2**30


class _Card(msgspec.Struct, frozen=True):
    """A common card of its size, by its data sheet."""

    gib: int
    name: str
    bandwidth_bytes_s: float
    n_cores: int
    clock_hz: float
    compute_capability: tuple[int, int]
    pcie: tuple[int, int]


_CARDS = (
    _Card(8, "RTX 5060", 448e9, 3840, 2.5e9, (12, 0), (5, 8)),
    _Card(12, "RTX 5070", 672e9, 6144, 2.51e9, (12, 0), (5, 16)),
    _Card(16, "RTX 5060 Ti 16GB", 448e9, 4608, 2.57e9, (12, 0), (5, 8)),
    _Card(24, "RTX 4090", 1008e9, 16384, 2.52e9, (8, 9), (4, 16)),
    _Card(32, "RTX 5090", 1792e9, 21760, 2.41e9, (12, 0), (5, 16)),
)
_PC_CORES = 8  # of a gaming PC, with SMT
_DESKTOP_BYTES = 600 * 2**20  # of the first card, for the driver and a desktop


def imagine(
    here: Machine,
    vram_bytes: Sequence[int] | None = None,
    ram_bytes: int | None = None,
    *,
    n_cores: int | None = None,
    ram_bytes_s: float | None = None,
) -> tuple[Machine, list[str]]:
    """Replace parts of this machine by others; with cards and RAM it is another PC altogether.

    Each card computes like the smallest known one that is as large. Nine tenths of the RAM count as
    available. Cores are physical ones, with SMT.

    Returns:
        The machine, and facts that the arguments leave open, such as `8 cores`.
    """
    is_other = vram_bytes is not None and ram_bytes is not None
    assumed = []
    if is_other:
        here = msgspec.structs.replace(here, disk="nvme", n_numa_nodes=1)
        if n_cores is None:
            n_cores = _PC_CORES
            assumed.append(_cores(n_cores))
        if ram_bytes_s is None:
            ram_bytes_s = RAM_BYTES_S
            assumed.append(f"RAM of {RAM_BYTES_S / 1e9:.0f} GB/s (two channels of DDR5-4800)")
        assumed.append("an NVMe disk")
    elif vram_bytes is not None or ram_bytes is not None:
        if n_cores is None:
            assumed.append(f"{_cores(here.n_cores or 1)} of this machine")
        kept = "GPU" if vram_bytes is None else "RAM"
        assumed.append(f"the {kept} of this machine")
    if n_cores is not None:
        here = msgspec.structs.replace(
            here, n_cores=n_cores, n_performance_cores=n_cores, n_logical_cores=2 * n_cores
        )
    here = msgspec.structs.replace(here, ram_bytes_s=ram_bytes_s)
    if vram_bytes is not None:
        is_wddm = here.platform == "windows"
        gpus = tuple(_imagine_gpu(i, n, is_wddm=is_wddm) for i, n in enumerate(vram_bytes))
        here = msgspec.structs.replace(here, gpus=gpus, has_cuda_build=True, cuda_build=None)
    if ram_bytes is not None:
        available_bytes = ram_bytes * 9 // 10
        here = msgspec.structs.replace(
            here,
            total_bytes=ram_bytes,
            available_bytes=available_bytes,
            pinnable_bytes=pinnable_bytes(here.platform, ram_bytes, available_bytes),
        )
    return here, assumed


def _cores(n: int) -> str:
    return f"{n} core{'s' * (n > 1)}"


def _imagine_gpu(index: int, n_bytes: int, *, is_wddm: bool) -> Gpu:
    card = next((card for card in _CARDS if card.gib * GIB >= n_bytes), _CARDS[-1])
    return Gpu(
        index=index,
        name=f"a card like {card.name}",
        total_bytes=n_bytes,
        free_bytes=max(0, n_bytes - (0 if index else _DESKTOP_BYTES)),
        compute_capability=card.compute_capability,
        pcie_generation=card.pcie[0],
        pcie_width=card.pcie[1],
        bandwidth_bytes_s=card.bandwidth_bytes_s,
        n_cores=card.n_cores,
        clock_hz=card.clock_hz,
        n_processes=0,
        is_wddm=is_wddm,
    )
