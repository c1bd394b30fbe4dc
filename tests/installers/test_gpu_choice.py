"""How a machine gets its llama.cpp, for machines that are not here."""

from typing import Any

import pytest
from gpu_choice import Facts, ListedGpu, choose, parse_gpus
from steps import SetupError

pytestmark = pytest.mark.quick

RTX_2060 = ListedGpu("NVIDIA GeForce RTX 2060", (7, 5))
RTX_3090 = ListedGpu("NVIDIA GeForce RTX 3090", (8, 6))
RTX_4090 = ListedGpu("NVIDIA GeForce RTX 4090", (8, 9))
RTX_5080 = ListedGpu("NVIDIA GeForce RTX 5080", (12, 0))
GTX_1080 = ListedGpu("NVIDIA GeForce GTX 1080", (6, 1))


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
    with pytest.raises(SetupError, match="without a C"):
        choose(facts(**ALPINE | {"compiler": None}))


def test_reads_nvidia_smi() -> None:
    listed = "NVIDIA GeForce RTX 4090, 8.9, 580.82.07\nNVIDIA GeForce RTX 5080, 12.0, 580.82.07\n"
    assert parse_gpus(listed) == ((RTX_4090, RTX_5080), 580)
    assert parse_gpus("NVIDIA GB10, 12.1, 580.126.09") == (
        (ListedGpu("NVIDIA GB10", (12, 1)),),
        580,
    )
    assert parse_gpus("Orin (nvgpu), [N/A], 595.78") == ((ListedGpu("Orin (nvgpu)", (8, 7)),), 595)
    assert parse_gpus("NVIDIA Thor, N/A, 580.00") == ((ListedGpu("NVIDIA Thor", (11, 0)),), 580)
    assert parse_gpus("A card, [N/A], 580.00") == ((), None)
    assert parse_gpus("NVIDIA-SMI has failed because it couldn't communicate") == ((), None)
    assert parse_gpus("Some GPU, [N/A], 470.1\n") == ((), None)
