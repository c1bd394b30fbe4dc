"""How a machine gets its llama.cpp, for machines that are not here."""

from pathlib import Path
from typing import Any

import gpu_choice
import pytest
from gpu_choice import UNKNOWN, Facts, ListedGpu, choose, parse_gpus
from steps import SetupError

pytestmark = pytest.mark.quick

RTX_2060 = ListedGpu("NVIDIA GeForce RTX 2060", (7, 5))
RTX_3090 = ListedGpu("NVIDIA GeForce RTX 3090", (8, 6))
RTX_4090 = ListedGpu("NVIDIA GeForce RTX 4090", (8, 9))
RTX_5080 = ListedGpu("NVIDIA GeForce RTX 5080", (12, 0))
GTX_1080 = ListedGpu("NVIDIA GeForce GTX 1080", (6, 1))


GTX_680 = ListedGpu("NVIDIA GeForce GTX 680", (3, 0))
NAMELESS = ListedGpu("an NVIDIA card", UNKNOWN)
GB10 = ListedGpu("NVIDIA GB10", (12, 1))
H100 = ListedGpu("NVIDIA H100 80GB HBM3", (9, 0))
V100 = ListedGpu("Tesla V100", (7, 0))
WINDOWS = {"system": "win32", "glibc": (0, 0), "compiler": None}
OLD_LINUX = {"glibc": (2, 36)}  # Debian 12
ALPINE = {"glibc": (0, 0)}


def facts(*gpus: ListedGpu, driver: int | None = 580, **others: Any) -> Facts:
    return Facts(gpus, driver if gpus else None, **others)


@pytest.mark.parametrize(
    ("machine", "ways"),
    [
        (facts(RTX_4090), "cuda-13.4, cuda-12.8, compiled for CUDA, cpu, compiled"),
        (facts(RTX_5080, RTX_4090, compiler=None), "cuda-13.4, cuda-12.8, cpu"),
        (facts(RTX_5080, **WINDOWS), "cuda-13.4, cuda-12.4, cpu"),
        (facts(RTX_4090, driver=570, **WINDOWS), "cuda-12.4, cpu"),
        (facts(RTX_4090, driver=570, compiler=None), "cuda-12.8, cpu"),
        # PTX of CUDA 13.4 wants a driver that is as new
        (facts(RTX_2060, compiler=None), "cuda-12.8, cuda-13.4, cpu"),
        (facts(H100, compiler=None), "cuda-12.8, cuda-13.4, cpu"),
        (facts(GTX_1080, compiler=None), "cuda-12.8, cpu"),
        (facts(V100, RTX_4090, compiler=None), "cuda-12.8, cuda-13.4, cpu"),
        (facts(GB10, machine="aarch64"), "cuda-13.4, compiled for CUDA, cpu, compiled"),
        (facts(GB10, machine="ARM64", **WINDOWS), "cuda-13.4, cpu"),
        (facts(RTX_4090, **OLD_LINUX), "compiled for CUDA, cpu, compiled"),
        (facts(RTX_4090, **OLD_LINUX, has_vulkan=True, compiler=None), "vulkan, cpu"),
        (facts(RTX_4090, driver=470, has_vulkan=True), "vulkan, cpu, compiled"),
        (facts(has_vulkan=True, compiler=None), "vulkan, cpu"),
        (facts(has_vulkan=True, machine="ARM64", **WINDOWS), "cpu"),
        (facts(machine="aarch64", **OLD_LINUX), "compiled"),
        (facts(**ALPINE), "compiled"),
        # a driver at the edge
        (facts(RTX_4090, driver=579, compiler=None), "cuda-12.8, cpu"),
        (facts(RTX_4090, driver=525, compiler=None), "cuda-12.8, cpu"),
        (facts(RTX_4090, driver=524, compiler=None), "cpu"),
        (facts(RTX_4090, driver=570, **OLD_LINUX), "cpu, compiled"),
        (facts(GTX_1080, GTX_680, compiler=None), "cuda-12.8, cpu"),
        (facts(GTX_680, driver=470, has_vulkan=True, compiler=None), "vulkan, cpu"),
        # a card that the driver does not name, and a card beside one of another maker
        (facts(NAMELESS), "cuda-12.8, cuda-13.4, cpu, compiled"),
        (facts(NAMELESS, RTX_4090), "cuda-12.8, cuda-13.4, compiled for CUDA, cpu, compiled"),
        (facts(NAMELESS, **OLD_LINUX), "cpu, compiled"),
        (facts(RTX_4090, has_vulkan=True, compiler=None), "cuda-13.4, cuda-12.8, vulkan, cpu"),
        # processors and Pythons without a release
        (facts(RTX_4090, machine="ppc64le"), "compiled for CUDA, compiled"),
        (facts(machine="i686", has_vulkan=True), "compiled"),
        (facts(machine="32 bits", has_vulkan=True), "compiled"),
        (facts(GB10, machine="arm64", driver=570, **WINDOWS), "cpu"),
        (facts(machine="aarch64", has_vulkan=True, compiler=None), "vulkan, cpu"),
        (facts(machine="aarch64", glibc=(2, 35)), "compiled"),
        (facts(glibc=(2, 35), has_vulkan=True, compiler=None), "vulkan, cpu"),
        (facts(RTX_4090, glibc=(2, 38), compiler=None), "cpu"),
        (facts(glibc=(2, 34)), "compiled"),
    ],
)
def test_the_ways_to_llama_cpp(machine: Facts, ways: str) -> None:
    assert ", ".join(choose(machine).ways) == ways


@pytest.mark.parametrize(
    ("machine", "architectures"),
    [
        (facts(RTX_3090, RTX_2060), ("75-real", "86-real")),
        (facts(RTX_5080), ("120a-real",)),  # its FP4 instructions are in no other architecture
        (facts(RTX_4090, GTX_1080), ("89-real",)),
        (facts(GB10, machine="aarch64"), ("121a-real",)),
    ],
)
def test_compiled_code_is_of_the_cards(machine: Facts, architectures: tuple[str, ...]) -> None:
    assert choose(machine).architectures == architectures


@pytest.mark.parametrize(
    ("machine", "reason", "advice"),
    [
        (facts(), "no GPU", "install driver 580"),
        (facts(RTX_4090, driver=470), "driver 470 is older", "driver 580 or newer"),
        (facts(RTX_4090, **ALPINE | {"compiler": None}), "no compiler", "apt install g++"),
        (facts(RTX_4090, driver=570, **OLD_LINUX), "system and driver 570", "driver 580 or newer"),
        (facts(GTX_1080, **OLD_LINUX), "no CUDA release for this system", "Ubuntu 24.04"),
        (facts(NAMELESS, **OLD_LINUX), "no CUDA release for this system", "Ubuntu 24.04"),
        (facts(GTX_680), "GTX 680: too old for CUDA 12", "GTX 900"),
    ],
)
def test_why_there_is_no_cuda(machine: Facts, reason: str, advice: str) -> None:
    with pytest.raises(SetupError, match=f"No CUDA: .*{reason}") as caught:
        choose(machine, "cuda")
    assert advice in caught.value.hint
    if machine.compiler:
        choice = choose(machine)
        assert reason in choice.reason
        assert advice in choice.advice
        assert choice.backend == "CPU"


def test_what_was_asked_for_and_nothing_else() -> None:
    machine = facts(RTX_4090, has_vulkan=True, compiler=None)
    assert choose(machine, "cpu").ways == ("cpu",)
    assert choose(machine, "vulkan").ways == ("vulkan",)
    assert choose(machine, "cuda").ways == ("cuda-13.4", "cuda-12.8")
    assert choose(machine, "vulkan").backend == "Vulkan"
    with pytest.raises(SetupError, match="No Vulkan"):
        choose(facts(RTX_4090), "vulkan")
    with pytest.raises(SetupError, match=r"no release for this system, and no C\+\+ compiler"):
        choose(facts(**ALPINE | {"compiler": None}))
    with pytest.raises(SetupError, match="no release for this Python") as caught:
        choose(facts(machine="win32", **WINDOWS))
    assert "64 bits" in caught.value.hint


def test_reads_nvidia_smi() -> None:
    listed = "NVIDIA GeForce RTX 4090, 8.9, 580.82.07\nNVIDIA GeForce RTX 5080, 12.0, 580.82.07\n"
    assert parse_gpus(listed) == ((RTX_4090, RTX_5080), 580)
    assert parse_gpus("NVIDIA GB10, 12.1, 580.126.09") == (
        (ListedGpu("NVIDIA GB10", (12, 1)),),
        580,
    )
    assert parse_gpus("Orin (nvgpu), [N/A], 595.78") == ((ListedGpu("Orin (nvgpu)", (8, 7)),), 595)
    assert parse_gpus("NVIDIA Thor, N/A, 580.00") == ((ListedGpu("NVIDIA Thor", (11, 0)),), 580)
    assert parse_gpus("A card, [N/A], 470.1\n") == ((ListedGpu("A card", UNKNOWN),), 470)
    assert parse_gpus("NVIDIA-SMI has failed because it couldn't communicate") == ((), None)
    assert parse_gpus("A card, [N/A], [N/A]") == ((), None)


@pytest.mark.parametrize(
    ("module", "libraries", "driver"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2", "libcuda", 470),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.126.09  Release Build",
            "libcuda",
            580,
        ),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07", "libvulkan", None),
        (None, "libcuda", None),
    ],
)
def test_a_card_without_nvidia_smi(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str | None,
    libraries: str,
    driver: int | None,
) -> None:
    """As with a driver before 510, whose own lacks the field; a container sees the module alone."""
    monkeypatch.setattr(gpu_choice, "answer_of", lambda _: None)
    monkeypatch.setattr(gpu_choice, "_loads", lambda name: name.startswith(libraries))
    monkeypatch.setattr(gpu_choice, "_MODULE", tmp_path / "version")
    if module:
        (tmp_path / "version").write_text(module)
    found = gpu_choice.read_facts(None)
    assert found.driver == driver
    assert found.gpus == ((NAMELESS,) if driver else ())
    assert found.has_vulkan == (libraries == "libvulkan")


def test_facts_of_the_subsystem_for_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows' driver has put its program where no PATH leads."""
    listed = {"/usr/lib/wsl/lib/nvidia-smi": "NVIDIA GeForce RTX 5080, 12.0, 581.29\n"}
    monkeypatch.setattr(gpu_choice, "answer_of", lambda command: listed.get(command[0]))
    assert gpu_choice.read_facts(None).gpus == (RTX_5080,)
