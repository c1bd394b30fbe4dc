"""Finds obstacles to a fast model, and their fixes, from facts about the machine."""

import time
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from gptoss_local.base.types import KvType
from gptoss_local.machine.hardware import Machine
from gptoss_local.machine.nvidia import Driver, Gpu
from gptoss_local.runner.losses import Loss

Level = Literal["ok", "note", "problem"]

GIB = 2**30
_SMALLEST_BYTES = 13 * 10**9  # gpt-oss-20b as a file
_RTX_50 = (12, 0)
_DRIVER = 580  # the oldest that the installer's CUDA works with
_RECENT_S = 7 * 24 * 3600
_BUILD = 'CMAKE_ARGS="-DGGML_CUDA=on" python3 installers/from_source.py run nano "hi"'


class Verdict(msgspec.Struct, frozen=True):
    """The verdict on one thing, and its remedy.

    `fix` may say why there is none; `repair` says how it did it, or raises OSError or GptOssError.
    """

    name: str
    level: Level
    text: str
    fix: str = ""
    question: str = ""
    repair: Callable[[], str] | None = None


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that matter besides the machine."""

    models_dir: str
    disk_free_bytes: int
    has_model: bool = False
    address: str  # the server's, running or not
    answers: Literal["gptoss", "other", "nobody", "no address"]
    kv_type: KvType = "f16"
    llama_problem: str = ""
    losses: tuple[Loss, ...] = ()  # engines that ended unasked


def diagnose(machine: Machine, around: Surroundings) -> list[Verdict]:
    return [
        *_gpus(machine),
        _build(machine, around),
        _processor(machine),
        _ram(machine),
        _disk(machine, around),
        _port(around),
        *_cache(around),
        *_losses(machine, around),
    ]


def _gpus(machine: Machine) -> Iterator[Verdict]:
    if machine.backend == "Vulkan":
        for gpu in machine.gpus:
            yield Verdict(f"GPU {gpu.index}", "ok", f"{_memory(gpu)}, by Vulkan.")
        if not machine.gpus:
            fix = "Install the card's driver with Vulkan; `vulkaninfo` lists it."
            yield Verdict("GPU", "note", "Vulkan shows no GPU.", fix)
        return
    if machine.driver is None:
        yield Verdict(
            "GPU",
            "note",
            "NVIDIA's driver does not answer, so there is no GPU to use.",
            f"If there is an NVIDIA card, install its driver, {_DRIVER} or newer"
            + (" (in Windows, not in WSL)." if machine.platform == "wsl" else "."),
        )
        return
    if machine.driver.n_silent:
        yield Verdict(
            "GPU",
            "problem",
            f"Driver {machine.driver.version} cannot read {machine.driver.n_silent} of the GPUs.",
            "Restart the computer; `nvidia-smi` says which one it is.",
        )
    if not machine.gpus and not machine.driver.n_silent:
        yield Verdict(
            "GPU",
            "problem",
            f"Driver {machine.driver.version} shows no GPU that may be used.",
            _why_hidden(machine),
        )
    for gpu in machine.gpus:
        yield _gpu(gpu, machine.driver, machine)


def _why_hidden(machine: Machine) -> str:
    if machine.visible_devices is None:
        return "`nvidia-smi -L` lists what the driver sees."
    return (
        f"CUDA_VISIBLE_DEVICES is '{machine.visible_devices}', which names none of those that "
        "`nvidia-smi -L` lists: unset it, or name one of them."
    )


def _gpu(gpu: Gpu, driver: Driver, machine: Machine) -> Verdict:
    name = f"GPU {gpu.index}"
    used_bytes = gpu.total_bytes - gpu.free_bytes
    text = _memory(gpu)
    if gpu.pcie_generation and gpu.pcie_width:
        text += f", PCIe {gpu.pcie_generation}.0 x{gpu.pcie_width}"
    text += f", driver {driver.version}."
    if gpu.compute_capability == _RTX_50 and driver.cuda and driver.cuda < (12, 8):
        return Verdict(name, "problem", text, f"Install driver {_DRIVER} or newer for an RTX 50.")
    major = driver.version.partition(".")[0]
    if major.isdigit() and int(major) < _DRIVER:
        fix = f"The installer's llama.cpp needs driver {_DRIVER}; older ones need one of their own."
        return Verdict(name, "note", text, fix)
    if not machine.has_code_for(gpu):
        fix = f"It is not used: CUDA {machine.cuda_build}, which llama.cpp is built with here, has"
        return Verdict(name, "note", text, f"{fix} no code for it. Other GPUs are used.")
    if gpu.is_busy:
        fix = f"It is busy ({gpu.busy_percent} %; programs on it: {gpu.n_processes or 'unknown'}): "
        fix += "answers are slower, and figures would be too low. `nvidia-smi` names the programs."
        return Verdict(name, "note", text, fix)
    if gpu.shares_ram:
        return Verdict(name, "ok", text)
    if used_bytes > max(2 * GIB, gpu.total_bytes // 5):
        fix = f"{used_bytes / GIB:.1f} GiB are in use: `nvidia-smi` shows by which programs."
        return Verdict(name, "note", text, fix)
    if gpu.is_wddm:
        fix = "Windows pages VRAM to RAM when it is full: leave room for other programs."
        return Verdict(name, "note", text, fix)
    return Verdict(name, "ok", text)


def _memory(gpu: Gpu) -> str:
    text = f"{gpu.name}: {gpu.free_bytes / GIB:.1f} of {gpu.total_bytes / GIB:.1f} GiB are free"
    return text + (", which are the system's RAM" if gpu.shares_ram else "")


def _build(machine: Machine, around: Surroundings) -> Verdict:
    if around.llama_problem:
        text = around.llama_problem
        return Verdict("llama.cpp", "problem", text, "Install gptoss again; see docs/install.md.")
    if machine.backend != "CPU":
        return Verdict("llama.cpp", "ok", f"Built with {machine.backend}.")
    if machine.gpus:
        text = "Built without CUDA and Vulkan: the GPU is not used."
        fix = f"Run the installer again. In a clone: {_BUILD}"
        return Verdict("llama.cpp", "problem", text, fix)
    return Verdict("llama.cpp", "ok", "Built for the CPU.")


def _processor(machine: Machine) -> Verdict:
    n = machine.n_cores
    text = f"{n or 'An unknown number of'} physical cores"
    if n and machine.n_performance_cores and machine.n_performance_cores < n:
        text += f", {machine.n_performance_cores} of them fast"
    if (machine.n_numa_nodes or 1) > 1:
        text += f", {machine.n_numa_nodes} NUMA nodes"
    if name := machine.lacks:
        fix = f"Keep all of the model in VRAM: without {name} experts in RAM are several times "
        return Verdict("CPU", "problem", f"{text}, no {name}.", f"{fix}slower.")
    features = ["AVX2"] if machine.has_avx2 else machine.arm_features or ()
    return Verdict("CPU", "ok", f"{', '.join([text, *features])}.")


def _ram(machine: Machine) -> Verdict:
    available, total = machine.available_bytes, machine.total_bytes
    text = f"{available / GIB:.1f} of {total / GIB:.1f} GiB are available"
    if machine.pinnable_bytes is not None and machine.pinnable_bytes < available:
        text += f", of which {machine.pinnable_bytes / GIB:.1f} can be pinned for a GPU"
    if machine.platform == "wsl":
        fix = "WSL gets half of the PC's RAM: `memory=` in .wslconfig raises that."
        return Verdict("RAM", "note", f"{text}.", fix)
    if available < total // 2:
        fix = "Other programs hold the rest, or a limit of this container or service does."
        return Verdict("RAM", "note", f"{text}.", fix)
    return Verdict("RAM", "ok", f"{text}.")


def _disk(machine: Machine, around: Surroundings) -> Verdict:
    kind = {"nvme": "NVMe", "ssd": "SSD", "rotating": "rotating disk", None: "disk"}[machine.disk]
    text = f"{around.disk_free_bytes / 1e9:.0f} GB are free on the {kind} of {around.models_dir}."
    if around.disk_free_bytes < _SMALLEST_BYTES:
        another = "Another model has no room: " if around.has_model else ""
        fix = f"{another}gpt-oss-20b needs 13 GB, 120b 64 GB; GPTOSS_HOME moves the folder."
        return Verdict("disk", "note" if around.has_model else "problem", text, fix)
    if machine.disk == "rotating":
        return Verdict(
            "disk", "note", text, "Models load in minutes from here, in seconds from NVMe."
        )
    return Verdict("disk", "ok", text)


def _port(around: Surroundings) -> Verdict:
    match around.answers:
        case "gptoss":
            return Verdict("server", "ok", f"gptoss answers at {around.address}.")
        case "nobody":
            return Verdict("server", "ok", f"{around.address} is free; no server runs.")
        case "no address":
            text = f"The host of {around.address} has no address."
            return Verdict("server", "problem", text, "GPTOSS_HOST sets it; 127.0.0.1 is usual.")
        case "other":
            text = f"Another program listens at {around.address}, perhaps Ollama."
            return Verdict("server", "problem", text, "Stop it, or set GPTOSS_PORT=11435.")


def _cache(around: Surroundings) -> Iterator[Verdict]:
    match around.kv_type:
        case "q8_0":
            text = "Keys and values are stored as q8_0, in half the memory of f16."
            yield Verdict("KV cache", "ok", text)
        case "q4_0":
            text = "Keys and values are stored as q4_0, which makes answers less exact."
            yield Verdict(
                "KV cache", "note", text, "GPTOSS_KV_TYPE=q8_0 is nearly as exact as f16."
            )


def _losses(machine: Machine, around: Surroundings) -> Iterator[Verdict]:
    recent = [loss for loss in around.losses if loss.at_s > time.time() - _RECENT_S]
    if not recent:
        return
    last, n = recent[-1], len(recent)
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(last.at_s))
    often = "once" if n == 1 else f"{n} times"
    text = f"It ended unasked {often} in the last 7 days, the last time at {when} with {last.model}"
    fixes = dict.fromkeys(_remedy(loss.message, machine) for loss in recent)
    yield Verdict("model runner", "note", f"{text}: {last.message}.", " ".join(fixes))


def _remedy(message: str, machine: Machine) -> str:
    if "signal 9" in message:
        return "RAM ran out: close other programs, or take a smaller context."
    if "out of memory" in message or "alloc" in message or "status -2" in message:
        return "Close programs that hold memory (`nvidia-smi`), or leave them room (GPTOSS_VRAM)."
    if machine.gpus:
        return (
            "After sleep: set NVreg_PreserveVideoMemoryAllocations=1 for the driver. Otherwise "
            f"install driver {_DRIVER} or newer; `sudo dmesg | grep Xid` names a fault of the GPU."
        )
    return "`gptoss logs` says more."
