"""Choose the ways to a llama.cpp that suits this machine, the best first: a pure function."""

import ctypes
import platform
import sys
from dataclasses import dataclass
from typing import Literal

from steps import SetupError, answer_of

Backend = Literal["auto", "cuda", "vulkan", "cpu"]

# Of llama.cpp's releases, by its release.yml. Their names are parts of the files' names.
CUDA_13 = "cuda-13.4"
CUDA_12 = {"linux": "cuda-12.8", "win32": "cuda-12.4"}
VULKAN, CPU, COMPILED, COMPILED_CUDA = "vulkan", "cpu", "compiled", "compiled for CUDA"

_OLDEST_DRIVER = {13: 580, 12: 525}  # of NVIDIA, by CUDA's major version
_OLDEST_CAPABILITY = {13: (7, 5), 12: (5, 0)}
# They have machine code for RTX 30, 40 and 50. Others run PTX, which an older driver may not
# compile if it is of a newer CUDA: for them the older release comes first.
_WITH_CODE = {(8, 6), (8, 9), (12, 0), (12, 1)}
_GLIBC = {"x64": {CPU: (2, 35), VULKAN: (2, 35)}}  # of Ubuntu 22.04; all others:
_NEWER_GLIBC = (2, 39)  # of Ubuntu 24.04
_KNOWN_CAPABILITIES = {"Orin": "8.7", "Thor": "11.0", "": ""}  # of Jetson


@dataclass(frozen=True)
class ListedGpu:
    """One GPU as the driver reports it: (8, 9) is Ada."""

    name: str
    capability: tuple[int, int]


@dataclass(frozen=True)
class Facts:
    """The facts that the choice depends on.

    Attributes:
        driver: Major version of NVIDIA's driver; None without one.
        machine: As `platform.machine()` reports it.
        system: As `sys.platform` has it.
        glibc: (0, 0) where there is another C library.
        has_vulkan: Vulkan's loader is here; a GPU need not be.
        compiler: The C++ compiler; None without one.
    """

    gpus: tuple[ListedGpu, ...] = ()
    driver: int | None = None
    machine: str = "x86_64"
    system: str = "linux"
    glibc: tuple[int, int] = (2, 41)
    has_vulkan: bool = False
    compiler: str | None = "c++"

    @property
    def arch(self) -> str:
        return arch_of(self.machine)


@dataclass(frozen=True)
class Choice:
    """The ways to llama.cpp here.

    Attributes:
        ways: Names of releases, `COMPILED` and `COMPILED_CUDA`; each is tried if those before fail.
        arch: Of the releases, as their names have it.
        architectures: Of CUDA code that is compiled here, `89-real`.
        reason: A sentence for the user.
        advice: How the user could get a better one; may be empty.
    """

    ways: tuple[str, ...]
    arch: str = "x64"
    architectures: tuple[str, ...] = ()
    reason: str = ""
    advice: str = ""

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
    by_name = {"auto": cuda + vulkan + cpu, "cuda": cuda, "vulkan": vulkan, "cpu": cpu}
    ways = by_name[wanted]
    if not ways:
        raise SetupError("llama.cpp must be compiled here, without a C++ compiler.", COMPILER_HINT)
    reason = reason or ", ".join(f"{gpu.name} ({_dotted(gpu)})" for gpu in facts.gpus)
    if wanted in ("vulkan", "cpu"):
        reason, advice = f"You asked for {wanted}.", ""
    return Choice(ways, facts.arch, _architectures(facts), reason, advice)


def described(way: str) -> str:
    """Return a way's download and time for the user."""
    if way.startswith(COMPILED):
        return f"{way} here, which takes minutes"
    n_mb = 750 if way.startswith("cuda") else 30
    return f"llama.cpp's release for {way.replace('cuda-', 'CUDA ')}, about {n_mb} MB"


def read_facts(compiler: str | None) -> Facts:
    """Ask NVIDIA's driver through nvidia-smi, which comes with it, and look for Vulkan's loader."""
    query = "--query-gpu=name,compute_cap,driver_version"
    listed = None
    for program in ("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi"):
        listed = listed or answer_of([program, query, "--format=csv,noheader"])
    gpus, driver = parse_gpus(listed or "")
    name, version = platform.libc_ver()
    major, minor = map(int, version.split(".")[:2]) if name == "glibc" else (0, 0)
    here = (platform.machine(), sys.platform, (major, minor))
    return Facts(gpus, driver, *here, _has_vulkan(), compiler)


def parse_gpus(listed: str) -> tuple[tuple[ListedGpu, ...], int | None]:
    """Read nvidia-smi's lines `NVIDIA GeForce RTX 4090, 8.9, 580.82.07`; Jetson has `[N/A]`."""
    gpus, driver = [], None
    for line in listed.splitlines():
        name, _, rest = line.partition(",")
        capability, _, version = rest.partition(",")
        known = (each for each in _KNOWN_CAPABILITIES if each in name.split())
        capability = capability if "." in capability else _KNOWN_CAPABILITIES[next(known, "")]
        major, _, minor = capability.strip().partition(".")
        first = version.strip().partition(".")[0]
        if major.isdigit() and minor.isdigit() and first.isdigit():
            gpus.append(ListedGpu(name.strip(), (int(major), int(minor))))
            driver = int(first)
    return tuple(gpus), driver


_VULKAN_HINT = "Debian, Ubuntu: apt install libvulkan1 mesa-vulkan-drivers. Windows: the driver."
COMPILER_HINT = "Debian, Ubuntu: apt install g++. Fedora: dnf install gcc-c++. Then run this again."


def _obstacle(facts: Facts) -> tuple[str, str]:
    """Return why CUDA cannot be used, and what to do about it."""
    again = f"install driver {_OLDEST_DRIVER[13]} or newer, then run the installer again."
    if not facts.gpus or facts.driver is None:
        return "NVIDIA's driver shows no GPU.", f"If there is an NVIDIA card: {again}"
    names = ", ".join(gpu.name for gpu in facts.gpus)
    if facts.driver < _OLDEST_DRIVER[12]:
        return f"{names}: driver {facts.driver} is older than CUDA 12 needs.", f"To use it: {again}"
    return f"{names}: llama.cpp has no CUDA release for it, and no compiler was found.", (
        COMPILER_HINT
    )


def _cuda_ways(facts: Facts) -> tuple[str, ...]:
    """Return the ways to CUDA; an answer on the GPU judges each."""
    new = _fitting(facts, CUDA_13) if _runs(facts, 13) else ()
    old = _fitting(facts, CUDA_12.get(facts.system, "")) if _runs(facts, 12) else ()
    old = old if facts.arch == "x64" else ()
    ways = new + old if {gpu.capability for gpu in facts.gpus} <= _WITH_CODE else old + new
    return (*ways, COMPILED_CUDA) if facts.compiler and _runs(facts, 13) else ways


def _runs(facts: Facts, cuda: int) -> bool:
    """Return whether the driver and at least one of its cards run this version of CUDA."""
    oldest = _OLDEST_CAPABILITY[cuda]
    return (facts.driver or 0) >= _OLDEST_DRIVER[cuda] and any(
        gpu.capability >= oldest for gpu in facts.gpus
    )


def _fitting(facts: Facts, release: str) -> tuple[str, ...]:
    """Return the name of a release if llama.cpp has it for this system."""
    if facts.system == "win32":
        exists = facts.arch == "x64" or release != VULKAN
        return (release,) if exists else ()
    oldest = _GLIBC.get(facts.arch, {}).get(release, _NEWER_GLIBC)
    return (release,) if release and facts.glibc >= oldest else ()


def _architectures(facts: Facts) -> tuple[str, ...]:
    # "a": the FP4 instructions of RTX 50 are in no architecture that newer cards run, too.
    usable = [gpu.capability for gpu in facts.gpus if gpu.capability >= _OLDEST_CAPABILITY[13]]
    return tuple(sorted({f"{a}{b}{'a' if a >= 12 else ''}-real" for a, b in usable}))


def _dotted(gpu: ListedGpu) -> str:
    return ".".join(map(str, gpu.capability))


def arch_of(machine: str = platform.machine()) -> str:
    """Return a processor's name in those of llama.cpp's releases."""
    return "arm64" if machine.lower() in ("aarch64", "arm64") else "x64"


def _has_vulkan() -> bool:
    try:
        ctypes.CDLL("vulkan-1.dll" if sys.platform == "win32" else "libvulkan.so.1")
    except OSError:
        return False
    return True
