"""Choose the llama.cpp that suits this machine's GPUs: a pure function, and its inputs."""

import platform
from dataclasses import dataclass
from typing import Literal

from steps import SetupError, answer_of

Backend = Literal["auto", "cuda", "cpu"]

OLDEST_DRIVER = 580  # of NVIDIA: the first of CUDA 13, and good for all of its minor versions
OLDEST_CAPABILITY = (7, 5)  # RTX 20; CUDA 13 compiles for nothing older
# Wheels of llama-cpp-python's index for CUDA 13, by its build-wheels-cuda.yaml: machine code
# for these. RTX 50 would run it as PTX of capability 9.0, without its FP4 instructions.
PREBUILT_CAPABILITIES = {(7, 5), (8, 0), (8, 6), (8, 9), (9, 0)}
RELEASE = "release"  # its build for any CPU, in place of a part of that index
PREBUILT_CUDA = "cu130"  # not cu132: nvcc 13.2 compiled some quantized kernels wrongly

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
        compiler: The C++ compiler; None without one.
        has_release: A release's build for the CPU is here.
    """

    gpus: tuple[ListedGpu, ...] = ()
    driver: int | None = None
    machine: str = "x86_64"
    compiler: str | None = "c++"
    has_release: bool = False


@dataclass(frozen=True)
class LlamaOrigin:
    """The way this machine gets its llama.cpp.

    Attributes:
        architectures: Of the CUDA code, `89-real`; empty for the CPU.
        prebuilt: Part of the maintainer's index to try first, `cu130`, or `RELEASE`; empty: none.
        build: Compile here, if no prebuilt one exists or it does not suit.
        reason: A sentence for the user.
        advice: How the user could get a better one; may be empty.
    """

    architectures: tuple[str, ...]
    prebuilt: str
    build: bool
    reason: str
    advice: str = ""

    @property
    def is_cuda(self) -> bool:
        return bool(self.architectures)


def choose(facts: Facts, wanted: Backend = "auto") -> LlamaOrigin:
    """Decide between prebuilt, native CUDA and CPU; SetupError if nothing suitable is possible."""
    reason, advice = ("You asked for the CPU.", "") if wanted == "cpu" else _obstacle(facts)
    if not reason:
        return _choose_cuda(facts)
    if wanted == "cuda":
        raise SetupError(f"No CUDA build: {reason}", advice)
    if facts.has_release:
        return LlamaOrigin((), RELEASE, facts.compiler is not None, reason, advice)
    if facts.compiler:
        return LlamaOrigin((), "", True, reason, advice)
    if not _is_x86(facts.machine):
        raise SetupError(
            "llama.cpp needs a C++ compiler on this machine, and none was found.", COMPILER_HINT
        )
    slower = f"With a C++ compiler it would use all that this CPU can do. {COMPILER_HINT}"
    return LlamaOrigin((), "cpu", False, reason, f"{advice} {slower}".strip())


def read_facts(compiler: str | None, has_release: bool = False) -> Facts:
    """Ask NVIDIA's driver through nvidia-smi, which comes with it."""
    query = "--query-gpu=name,compute_cap,driver_version"
    listed = None
    for program in ("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi"):
        listed = listed or answer_of([program, query, "--format=csv,noheader"])
    gpus, driver = parse_gpus(listed or "")
    return Facts(gpus, driver, platform.machine(), compiler, has_release)


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


COMPILER_HINT = (
    "Debian, Ubuntu, WSL: apt install g++. Fedora: dnf install gcc-c++. Windows: winget install "
    "Microsoft.VisualStudio.2022.BuildTools, with the workload for C++. Then run this again."
)


def _obstacle(facts: Facts) -> tuple[str, str]:
    """Return why CUDA cannot be used, and what to do about it; two empty strings if it can."""
    again = "then run the installer again."
    if not facts.gpus or facts.driver is None:
        advice = f"If there is an NVIDIA card: install its driver, {OLDEST_DRIVER} or newer, "
        return "NVIDIA's driver shows no GPU.", advice + again
    names = ", ".join(gpu.name for gpu in facts.gpus)
    if facts.driver < OLDEST_DRIVER:
        reason = f"{names}: driver {facts.driver} is older than CUDA 13 needs."
        return reason, f"Install driver {OLDEST_DRIVER} or newer, {again}"
    usable = _usable(facts)
    if not usable:
        return f"{names}: CUDA 13 needs an RTX 20 or newer.", ""
    if not facts.compiler and not _prebuilt(facts):
        reason = f"{names}: no prebuilt llama.cpp supports it, and no C++ compiler was found."
        return reason, COMPILER_HINT
    return "", ""


def _choose_cuda(facts: Facts) -> LlamaOrigin:
    usable = _usable(facts)
    # "a": the FP4 instructions of RTX 50 are in no architecture that newer cards run, too.
    names = {f"{a}{b}{'a' if a >= 12 else ''}-real" for a, b in (gpu.capability for gpu in usable)}
    prebuilt = _prebuilt(facts)
    reason = ", ".join(f"{gpu.name} ({gpu.capability[0]}.{gpu.capability[1]})" for gpu in usable)
    return LlamaOrigin(tuple(sorted(names)), prebuilt, facts.compiler is not None, reason)


def _usable(facts: Facts) -> list[ListedGpu]:
    return [gpu for gpu in facts.gpus if gpu.capability >= OLDEST_CAPABILITY]


def _prebuilt(facts: Facts) -> str:
    capabilities = {gpu.capability for gpu in _usable(facts)}
    suits = _is_x86(facts.machine) and capabilities <= PREBUILT_CAPABILITIES
    return PREBUILT_CUDA if suits else ""


def _is_x86(machine: str) -> bool:
    return machine.lower() in ("x86_64", "amd64")
