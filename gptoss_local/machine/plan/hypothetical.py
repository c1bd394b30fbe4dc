"""Imagined machines, for a look before one buys or downloads."""

import functools
import re
import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import resources
from typing import Any

from msgspec.structs import replace

from gptoss_local.base.errors import UsageError
from gptoss_local.base.quantities import counted
from gptoss_local.machine.hardware import Machine, pinnable_bytes
from gptoss_local.machine.nvidia import Gpu
from gptoss_local.machine.plan.speed import RAM_BYTES_S

GIB = 2**30


_USUAL = ("RTX 5060", "RTX 5070", "RTX 5060 Ti 16GB", "RTX 4090", "RTX 5090")
"""A common card of each size, the smallest first."""
_NO_NAME = re.compile(  # what drivers and shops put into names
    r"nvidia|geforce|tesla|gpu|nvgpu|generation|edition|workstation|server|blackwell"
    r"|lite hash rate|developer kit|sxm\d?(?: ac)?|hbm\d?e?|[^a-z0-9]"
)
_SIZE = re.compile(r"\b(\d+) ?gi?b?\b", re.IGNORECASE)
_TIMES = re.compile(r"(?:([1-9])\s*[x×]\s*)?(.*?)(?:\s*[x×]\s*([1-9]))?", re.IGNORECASE | re.DOTALL)
_SIZE_ROUNDING = 0.03  # an H200 of "141 GB" has 140 GiB
_OTHER_NAMES = {
    **dict.fromkeys(("dgxspark", "gb10superchip", "spark"), "gb10"),
    **dict.fromkeys(("thor", "jetsonthor", "agxthor"), "jetsonagxthor"),
    **dict.fromkeys(("agxorin", "jetsonagxorin"), "jetsonagxorin64gb"),
    "gh200480gb": "gh200",
    "gb200": "b200",
    "gb300": "b300",
    "h800": "h100",
    **{f"a800{size}": f"a100{size}" for size in ("40gb", "80gb")},
}
_PC_CORES = 8  # of a gaming PC, with SMT
_DESKTOP_BYTES = 600 * 2**20  # of the first card, for the driver and a desktop


@functools.cache
def known_cards() -> dict[str, Gpu]:
    """Return cards by their data sheets, all of their memory free."""
    data = tomllib.loads(resources.files(__package__).joinpath("cards.toml").read_text("utf-8"))
    return {
        name: _card(name, figures, shares_ram=kind == "shares_ram")
        for kind, cards in data.items()
        for name, figures in cards.items()
    }


def _card(name: str, figures: Sequence[float], *, shares_ram: bool) -> Gpu:
    gib, gb_s, n_cores, clock_ghz, capability, pcie_generation, pcie_width = figures
    major, minor = divmod(round(capability * 10), 10)
    return Gpu(
        index=0,
        name=name,
        total_bytes=round(gib * GIB),
        free_bytes=round(gib * GIB),
        compute_capability=(major, minor),
        pcie_generation=int(pcie_generation),
        pcie_width=int(pcie_width),
        bandwidth_bytes_s=gb_s * 1e9,
        n_cores=int(n_cores),
        clock_hz=clock_ghz * 1e9,
        n_processes=0,
        shares_ram=shares_ram,
    )


def cards_named(text: str) -> list[Gpu]:
    """Return the card of a name, as often as `2x RTX 3090` or `RTX 3090 x2` says."""
    before, name, after = _TIMES.fullmatch(text.strip()).groups()  # type: ignore[union-attr]
    return int(before or after or 1) * [card_named(name)]


def card_named(text: str) -> Gpu:
    by_key = {_key(name): card for name, card in known_cards().items()}
    key = _OTHER_NAMES.get(_key(text), _key(text))
    if found := [by_key[each] for each in _spellings(key) if each in by_key]:
        return found[0]
    if size := _SIZE.search(text):  # as of "H100 80GB HBM3", a card that is known without it
        for each in _spellings(_key(text.replace(size[0], " "))):
            card = by_key.get(each)
            if card and abs(int(size[1]) * GIB / card.total_bytes - 1) < _SIZE_ROUNDING:
                return card
    near = [name for name in by_key if key and key in name] or get_close_matches(key, by_key, n=3)
    names = ", ".join(by_key[name].name for name in near)
    hint = f"Did you mean {names}?" if near else "--vram SIZE imagines a card of any size."
    raise UsageError(f"the card {text.strip()!r} is not known", hint=hint)


def _spellings(key: str) -> tuple[str, ...]:
    return key, f"rtx{key}", key.replace("pcie", "")


def _key(name: str) -> str:
    name = re.sub(_NO_NAME, "", name.lower())
    return re.sub(r"(?<=\d)gib?$|(?<=\d)g$", "gb", name)


def card_of_size(n_bytes: int) -> Gpu:
    """Return a card of unknown type, as fast as a common one of that size."""
    usual = [known_cards()[name] for name in _USUAL]
    card = next((card for card in usual if card.total_bytes >= n_bytes), usual[-1])
    return replace(card, name=f"a card like {card.name}", total_bytes=n_bytes, free_bytes=n_bytes)


def imagine(
    here: Machine,
    cards: Sequence[Gpu] | None = None,
    ram_bytes: int | None = None,
    *,
    n_cores: int | None = None,
    ram_bytes_s: float | None = None,
) -> tuple[Machine, list[str]]:
    """Replace parts of this machine; also return what that leaves open, as `8 cores`.

    A board with one memory has all of the RAM. Nine tenths of it count as available.
    """
    for board in (card for card in cards or () if card.shares_ram):
        ram_bytes, ram_bytes_s = board.total_bytes, board.bandwidth_bytes_s
    changed: dict[str, Any] = {}
    assumed = []
    if cards is not None and ram_bytes is not None:
        changed |= {"disk": "nvme", "n_numa_nodes": 1}
        if n_cores is None:
            n_cores = _PC_CORES
            assumed.append(counted(n_cores, "core"))
        if ram_bytes_s is None:
            ram_bytes_s = RAM_BYTES_S
            assumed.append(f"RAM of {RAM_BYTES_S / 1e9:.0f} GB/s (two channels of DDR5-4800)")
        assumed.append("an NVMe disk")
    elif cards is not None or ram_bytes is not None:
        if n_cores is None:
            assumed.append(f"{counted(here.n_cores or 1, 'core')} of this machine")
        assumed.append(f"the {'GPU' if cards is None else 'RAM'} of this machine")
    if n_cores is not None:
        changed |= dict.fromkeys(("n_cores", "n_performance_cores"), n_cores)
        changed["n_logical_cores"] = 2 * n_cores
    if cards is not None:
        is_wddm = here.platform == "windows"
        gpus = [replace(card, index=i, is_wddm=is_wddm) for i, card in enumerate(cards)]
        if gpus:
            n_free = max(0, gpus[0].free_bytes - _DESKTOP_BYTES)
            gpus[0] = replace(gpus[0], free_bytes=n_free)
        changed |= {"gpus": tuple(gpus), "backend": "CUDA", "cuda_build": None}
    if ram_bytes is not None:
        changed |= {"total_bytes": ram_bytes, "available_bytes": ram_bytes * 9 // 10}
        changed["pinnable_bytes"] = pinnable_bytes(here.platform, ram_bytes, ram_bytes * 9 // 10)
    return replace(here, ram_bytes_s=ram_bytes_s, **changed), assumed
