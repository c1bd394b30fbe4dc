"""Choose the ways to a llama.cpp that suits this machine, the best first: a pure function."""

import contextlib
import ctypes
import platform
import re
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from steps import SetupError, answer_of

Backend = Literal["auto", "cuda", "vulkan", "cpu"]

# Of llama.cpp's releases, by its release.yml. Their names are parts of the files' names.
CUDA_13, VULKAN, CPU = "cuda-13.4", "vulkan", "cpu"
COMPILED, COMPILED_CUDA = "compiled", "compiled for CUDA"
_22_04, _24_04 = (2, 35), (2, 39)  # glibc of the Ubuntu that they are made on
RELEASES = {
    ("linux", "x64"): {CUDA_13: _24_04, "cuda-12.8": _24_04, VULKAN: _22_04, CPU: _22_04},
    ("linux", "arm64"): {CUDA_13: _24_04, VULKAN: _24_04, CPU: _24_04},
    ("win32", "x64"): dict.fromkeys((CUDA_13, "cuda-12.4", VULKAN, CPU), (0, 0)),
    ("win32", "arm64"): dict.fromkeys((CUDA_13, CPU), (0, 0)),
}
_OLDEST_DRIVER = {13: 580, 12: 525}  # of NVIDIA, by CUDA's major version
_OLDEST_CAPABILITY = {13: (7, 5), 12: (5, 0)}
# They have machine code for RTX 30, 40 and 50. Others run PTX, which an older driver may not
# compile if it is of a newer CUDA: for them the older release comes first.
_WITH_CODE = {(8, 6), (8, 9), (12, 0), (12, 1)}
UNKNOWN = (99, 0)  # a capability: such a card is tried
_JETSON = {"Orin": (8, 7), "Thor": (11, 0)}  # nvidia-smi has no capability for them
_ARCHS = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_MODULE = Path("/proc/driver/nvidia/version")  # "… Kernel Module  580.82.07  Release Build …"

_VULKAN_HINT = "Debian, Ubuntu: apt install libvulkan1 mesa-vulkan-drivers. Windows: the driver."
COMPILER_HINT = "Debian, Ubuntu: apt install g++. Fedora: dnf install gcc-c++. Then run this again."


@dataclass(frozen=True)
class ListedGpu:
    """One GPU as the driver reports it: (8, 9) is Ada."""

    name: str
    capability: tuple[int, int]

    @property
    def described(self) -> str:
        major, minor = self.capability
        return self.name if self.capability == UNKNOWN else f"{self.name} ({major}.{minor})"


@dataclass(frozen=True)
class Facts:
    """The facts that the choice depends on."""

    gpus: tuple[ListedGpu, ...] = ()
    driver: int | None = None  # NVIDIA's, its first number
    machine: str = "x86_64"  # that this Python is made for, which an emulator may run
    system: str = "linux"
    glibc: tuple[int, int] = (2, 41)  # (0, 0): another C library
    has_vulkan: bool = False  # its loader is here; a GPU need not be
    compiler: str | None = "c++"


@dataclass(frozen=True)
class Choice:
    """The ways to llama.cpp here, each of which is tried if those before fail; and why."""

    ways: tuple[str, ...]
    arch: str = "x64"
    architectures: tuple[str, ...] = ()  # of CUDA code that is compiled here, `89-real`
    reason: str = ""
    advice: str = ""  # how the user could get a better one

    @property
    def backend(self) -> str:
        names = {VULKAN: "Vulkan", CPU: "CPU", COMPILED: "CPU"}
        return names.get(self.ways[0], "CUDA")


def choose(facts: Facts, wanted: Backend = "auto") -> Choice:
    """Return what can be tried; SetupError if nothing can."""
    cuda = _cuda_ways(facts)
    vulkan = _fitting(facts, VULKAN) if facts.has_vulkan else ()
    cpu = (*_fitting(facts, CPU), *((COMPILED,) if facts.compiler else ()))
    reason, advice = _obstacle(facts) if not cuda else ("", "")
    if wanted == "cuda" and not cuda:
        raise SetupError(f"No CUDA: {reason}", advice)
    if wanted == "vulkan" and not vulkan:
        raise SetupError("No Vulkan: there is no loader, or no release for it.", _VULKAN_HINT)
    ways = {"auto": cuda + vulkan + cpu, "cuda": cuda, "vulkan": vulkan, "cpu": cpu}[wanted]
    if not ways:
        hint = COMPILER_HINT if facts.system == "linux" else "Install Python for 64 bits."
        what = "Python" if facts.system == "win32" else "system, and no C++ compiler was found"
        raise SetupError(f"llama.cpp has no release for this {what}.", hint)
    reason = reason or ", ".join(gpu.described for gpu in facts.gpus)
    if wanted in ("vulkan", "cpu"):
        reason, advice = f"You asked for {wanted}.", ""
    return Choice(ways, arch_of(facts.machine), _architectures(facts), reason, advice)


def described(way: str) -> str:
    """Return a way's download and time for the user."""
    if way.startswith(COMPILED):
        long = "15 minutes or more" if way == COMPILED_CUDA else "5 minutes on 2 cores"
        return f"{way} here, which takes {long}"
    n_mb = {CUDA_13: 750, VULKAN: 30, CPU: 30}.get(way, 550)
    return f"llama.cpp's release for {way.replace('cuda-', 'CUDA ')}, about {n_mb} MB"


def read_facts(compiler: str | None) -> Facts:
    """Ask NVIDIA's driver, mostly through nvidia-smi, and look for Vulkan's loader."""
    query = "--query-gpu=name,compute_cap,driver_version"
    listed = None
    for program in ("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi"):
        listed = listed or answer_of([program, query, "--format=csv,noheader"])
    gpus, driver = parse_gpus(listed or _without_smi())
    name, version = platform.libc_ver()
    major, minor = map(int, version.split(".")[:2]) if name == "glibc" else (0, 0)
    machine = sysconfig.get_platform().rpartition("-")[2] if sys.maxsize > 2**32 else "32 bits"
    loader = "vulkan-1.dll" if sys.platform == "win32" else "libvulkan.so.1"
    here = (machine, sys.platform, (major, minor))
    return Facts(gpus, driver, *here, _loads(loader), compiler)


def parse_gpus(listed: str) -> tuple[tuple[ListedGpu, ...], int | None]:
    """Read nvidia-smi's lines `NVIDIA GeForce RTX 4090, 8.9, 580.82.07`; Jetson has `[N/A]`."""
    gpus, driver = [], None
    for name, capability, version in re.findall(r"^(.+?), *(.*?), *(\d+)\.", listed, re.M):
        jetson = next((_JETSON[word] for word in name.split() if word in _JETSON), UNKNOWN)
        found = re.fullmatch(r"(\d+)\.(\d+)", capability)
        gpus.append(ListedGpu(name, (int(found[1]), int(found[2])) if found else jetson))
        driver = int(version)
    return tuple(gpus), driver


def _without_smi() -> str:
    """Return a line as of nvidia-smi, which older drivers and some packages of new ones lack."""
    with contextlib.suppress(OSError):
        found = re.search(r"\b\d{3}\.\d+", _MODULE.read_text(encoding="utf-8"))
        if found and _loads("libcuda.so.1"):  # a container sees the module without it
            return f"an NVIDIA card, [N/A], {found[0]}"
    return ""


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _obstacle(facts: Facts) -> tuple[str, str]:
    """Return why CUDA cannot be used, and what to do about it."""
    again = f"install driver {_OLDEST_DRIVER[13]} or newer, then run the installer again."
    if not facts.gpus or facts.driver is None:
        return "NVIDIA's driver shows no GPU.", f"If there is an NVIDIA card: {again}"
    names = ", ".join(gpu.name for gpu in facts.gpus)
    if facts.driver < _OLDEST_DRIVER[12]:
        return f"{names}: driver {facts.driver} is older than CUDA 12 needs.", f"To use it: {again}"
    if not _runs(facts, 12):
        return f"{names}: too old for CUDA 12.", "It runs on GTX 900 and newer."
    reason = f"{names}: llama.cpp has no CUDA release for this system"
    if not _architectures(facts):  # an unknown card, or too old for what is compiled here
        return f"{reason}.", "One with glibc 2.39 or newer has it: Ubuntu 24.04, Debian 13."
    if facts.driver < _OLDEST_DRIVER[13]:
        return f"{reason} and driver {facts.driver}.", f"To use it: {again}"
    return f"{reason}, and no compiler was found.", COMPILER_HINT


def _cuda_ways(facts: Facts) -> tuple[str, ...]:
    """Return the ways to CUDA; an answer on the GPU judges each."""
    new = _fitting(facts, CUDA_13) if _runs(facts, 13) else ()
    old = _fitting(facts, "cuda-12.8", "cuda-12.4") if _runs(facts, 12) else ()
    ways = new + old if {gpu.capability for gpu in facts.gpus} <= _WITH_CODE else old + new
    can_compile = facts.compiler and _runs(facts, 13) and _architectures(facts)
    return (*ways, COMPILED_CUDA) if can_compile else ways


def _runs(facts: Facts, cuda: int) -> bool:
    """Return whether the driver and at least one of its cards run this version of CUDA."""
    oldest = _OLDEST_CAPABILITY[cuda]
    return (facts.driver or 0) >= _OLDEST_DRIVER[cuda] and any(
        gpu.capability >= oldest for gpu in facts.gpus
    )


def _fitting(facts: Facts, *releases: str) -> tuple[str, ...]:
    """Return those releases that llama.cpp has for this system."""
    found = RELEASES.get((facts.system, arch_of(facts.machine)), {})
    return tuple(name for name in releases if name in found and facts.glibc >= found[name])


def _architectures(facts: Facts) -> tuple[str, ...]:
    # "a": the FP4 instructions of RTX 50 are in no architecture that newer cards run, too.
    capabilities = {gpu.capability for gpu in facts.gpus}
    usable = [each for each in capabilities if _OLDEST_CAPABILITY[13] <= each < UNKNOWN]
    return tuple(sorted(f"{a}{b}{'a' if a >= 12 else ''}-real" for a, b in usable))


def arch_of(machine: str = platform.machine()) -> str:
    """Return a processor's name in those of llama.cpp's releases; "" where there are none."""
    return _ARCHS.get(machine.lower(), "")
